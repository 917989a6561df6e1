-- +goose Up
-- no is a UUID of version 7, so that it sorts by the time of placing. version counts the writes. The three keys serve the
-- list, which goes from the newest order backwards. message_id is the order's latest message. first_due_at is NULL until the due
-- time is moved, and then what it was at first. reminded_at is when the buyer was reminded, the last time.
CREATE TABLE IF NOT EXISTS orders (
  no           VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  kind         ENUM('normal', 'flash', 'presale')  NOT NULL,
  status       ENUM('pending', 'paid', 'closed')   NOT NULL DEFAULT 'pending',
  close_reason ENUM('timeout', 'user')             NULL,
  total        BIGINT       NOT NULL,
  version      INT UNSIGNED NOT NULL DEFAULT 1,
  message_id   BIGINT       NOT NULL DEFAULT 0,
  due_at       DATETIME(6)  NOT NULL,
  first_due_at DATETIME(6)  NULL,
  reminded_at  DATETIME(6)  NULL,
  created_at   DATETIME(6)  NOT NULL,
  paid_at      DATETIME(6)  NULL,
  closed_at    DATETIME(6)  NULL,
  PRIMARY KEY (no),
  KEY by_user (user_id, no),
  KEY by_user_status (user_id, status, no),
  KEY by_status (status, no)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS orders;
