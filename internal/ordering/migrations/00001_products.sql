-- +goose Up
-- available + reserved + sold is the sum of the product's adjust movements. None of them is ever below zero: every write
-- has that in its WHERE.
CREATE TABLE IF NOT EXISTS products (
  sku       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name      VARCHAR(200) NOT NULL,
  available BIGINT       NOT NULL,
  reserved  BIGINT       NOT NULL DEFAULT 0,
  sold      BIGINT       NOT NULL DEFAULT 0,
  PRIMARY KEY (sku)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS products;
