-- +goose Up
-- What operators have done to messages, written in the transaction that did it. It outlives the messages.
CREATE TABLE IF NOT EXISTS outbox_audit (
  id          BIGINT         NOT NULL AUTO_INCREMENT,
  acted_at    DATETIME(6)    NOT NULL,
  actor       VARCHAR(64)    NOT NULL,
  via         VARBINARY(16)  NOT NULL,
  action      VARBINARY(16)  NOT NULL,
  message_id  BIGINT         NOT NULL,
  topic       VARBINARY(64)  NOT NULL,
  message_key VARBINARY(191) NULL,
  detail      VARCHAR(1000)  NOT NULL,
  PRIMARY KEY (id),
  KEY by_message (message_id),
  KEY by_actor (actor),
  KEY by_age (acted_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS outbox_audit;
