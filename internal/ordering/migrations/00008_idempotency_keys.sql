-- +goose Up
-- fingerprint is the SHA-256 of the request. What was answered is read from the order.
CREATE TABLE IF NOT EXISTS idempotency_keys (
  user_id     VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  idem_key    VARBINARY(128) NOT NULL,
  fingerprint BINARY(32)   NOT NULL,
  order_no    VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  used_at     DATETIME(6)  NOT NULL,
  PRIMARY KEY (user_id, idem_key),
  KEY by_age (used_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS idempotency_keys;
