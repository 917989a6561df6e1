-- +goose Up
CREATE TABLE IF NOT EXISTS order_items (
  order_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  item     SMALLINT UNSIGNED NOT NULL,
  sku      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  quantity BIGINT NOT NULL,
  price    BIGINT NOT NULL,
  PRIMARY KEY (order_no, item)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS order_items;
