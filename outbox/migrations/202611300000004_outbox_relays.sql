-- +goose Up
-- The relays that have lately said that they live. A worker calls itself the same in outbox_reconcile_runs.
CREATE TABLE IF NOT EXISTS outbox_relays (
  owner   VARBINARY(64) NOT NULL,
  seen_at DATETIME(6)   NOT NULL,
  PRIMARY KEY (owner)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS outbox_relays;
