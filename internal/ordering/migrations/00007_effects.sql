-- +goose Up
-- One row for each time that the effect of a message was committed. There is no unique key on purpose: an effect that
-- happened twice must be seen, not hidden.
CREATE TABLE IF NOT EXISTS effects (
  id          BIGINT       NOT NULL AUTO_INCREMENT,
  message_id  BIGINT       NOT NULL,
  generation  INT UNSIGNED NOT NULL,
  effected_at DATETIME(6)  NOT NULL,
  PRIMARY KEY (id),
  KEY message (message_id, generation)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS effects;
