-- +goose Up
-- Deliveries that could not be given to a handler, kept for an operator before they are acknowledged.
CREATE TABLE IF NOT EXISTS outbox_unrouted (
  id          BIGINT        NOT NULL AUTO_INCREMENT,
  reason      VARBINARY(32) NOT NULL,
  detail      VARCHAR(1000) NULL,
  message_id  VARBINARY(255) NULL,
  routing_key VARBINARY(255) NULL,
  headers     MEDIUMBLOB    NULL,
  payload     LONGBLOB      NULL,
  kept_at     DATETIME(6)   NOT NULL,
  PRIMARY KEY (id),
  KEY kept (kept_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS outbox_unrouted;
