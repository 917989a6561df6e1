-- +goose Up
-- Why a product's numbers are what they are. An item of an order moves at most once in each direction: once is enforced
-- here, also against a doubled effect. Adjustments belong to no order and may be below zero. by_sku has all that an audit reads.
CREATE TABLE IF NOT EXISTS stock_movements (
  id        BIGINT NOT NULL AUTO_INCREMENT,
  sku       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  order_no  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  item      SMALLINT UNSIGNED NULL,
  direction ENUM('adjust', 'reserve', 'release', 'sell') NOT NULL,
  quantity  BIGINT NOT NULL,
  moved_at  DATETIME(6) NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY once (order_no, item, direction),
  KEY by_sku (sku, direction, quantity)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS stock_movements;
