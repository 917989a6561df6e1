-- +goose Up
-- The live relays, each with what its worker last said about the broker (JSON).
CREATE TABLE IF NOT EXISTS outbox_relays (
  owner   VARBINARY(64) NOT NULL,
  seen_at DATETIME(6)   NOT NULL,
  detail  BLOB          NULL,
  PRIMARY KEY (owner)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS outbox_relays;
