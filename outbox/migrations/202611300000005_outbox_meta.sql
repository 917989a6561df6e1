-- +goose Up
-- One row. store_id goes on the wire, so that a delivery that belongs to another ledger is never run against this one.
-- broker_epoch counts the lives of the broker; rows published in an earlier life than empty_epoch (its disk was empty)
-- or broker_epoch (it restarted) are scheduled again: rearms times for rearmed_epoch, last at rearmed_at.
-- raised_at is for people: when broker_epoch was raised last.
CREATE TABLE IF NOT EXISTS outbox_meta (
  id            TINYINT       NOT NULL,
  store_id      VARBINARY(36) NOT NULL,
  broker_epoch  BIGINT        NOT NULL DEFAULT 0,
  empty_epoch   BIGINT        NOT NULL DEFAULT 0,
  raised_at     DATETIME(6)   NULL,
  rearmed_epoch BIGINT        NOT NULL DEFAULT 0,
  rearms        INT UNSIGNED  NOT NULL DEFAULT 0,
  rearmed_at    DATETIME(6)   NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS outbox_meta;
