-- +goose Up
-- The relays that have lately said that they live, and what each said of itself. A worker calls itself the same in
-- outbox_reconcile_runs. since is when connected and blocked came to be as they are; queues is JSON; published and finished
-- count from the relay's start.
CREATE TABLE IF NOT EXISTS outbox_relays (
  owner     VARBINARY(64) NOT NULL,
  seen_at   DATETIME(6)   NOT NULL,
  strategy  VARCHAR(16)   NOT NULL DEFAULT '',
  why       VARCHAR(255)  NOT NULL DEFAULT '',
  epoch     BIGINT        NOT NULL DEFAULT 0,
  connected BOOLEAN       NOT NULL DEFAULT FALSE,
  blocked   BOOLEAN       NOT NULL DEFAULT FALSE,
  reason    VARCHAR(1000) NOT NULL DEFAULT '',
  since     DATETIME(6)   NULL,
  queues    MEDIUMBLOB    NULL,
  published BIGINT        NOT NULL DEFAULT 0,
  finished  BIGINT        NOT NULL DEFAULT 0,
  PRIMARY KEY (owner)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS outbox_relays;
