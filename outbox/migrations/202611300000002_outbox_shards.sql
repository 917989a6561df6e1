-- +goose Up
-- Who may publish from which shard, and until when by the database's clock. token counts the
-- changes of owner, for people: one that rises all the time says that relays come and go or lose their leases.
CREATE TABLE IF NOT EXISTS outbox_shards (
  shard      TINYINT UNSIGNED NOT NULL,
  owner      VARBINARY(64)    NULL,
  token      BIGINT           NOT NULL DEFAULT 0,
  expires_at DATETIME(6)      NOT NULL,
  PRIMARY KEY (shard)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS outbox_shards;
