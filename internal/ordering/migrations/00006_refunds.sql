-- +goose Up
-- Payments that did not make an order paid: the money goes back.
CREATE TABLE IF NOT EXISTS refunds (
  payment_id  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  order_no    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount      BIGINT      NOT NULL,
  recorded_at DATETIME(6) NOT NULL,
  PRIMARY KEY (payment_id),
  KEY by_order (order_no)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS refunds;
