-- +goose Up
-- Topic and keys are VARBINARY: under a collation 'abc', 'ABC' and 'abc ' would be one key.
-- live_key equals message_key while the row is scheduled, published or dead, else NULL, so that a key is free again
-- once its message has ended. Every write that makes a row scheduled sets available_at to the statement's time or
-- later: the relay's low-water mark relies on it.
-- last_error is of the attempts and repairs that are counted, also when the row is done; it goes when they start at 0 again. failed_at is when it was
-- written: rarely, so that what is written for each message stays as large as it is.
-- begins counts, since the last attempt, effects of redelivered messages that have begun and not come to an end.
-- The constraints keep out what would stop every relay or be passed over by all of them, which only a write by hand can make.
-- published_at is 1970 rather than NULL before the first publish, so that settling a row does not change its size:
-- InnoDB then writes it in place instead of moving it within its page (half the cost of a settle).
CREATE TABLE IF NOT EXISTS outbox_messages (
  id            BIGINT           NOT NULL AUTO_INCREMENT,
  shard         TINYINT UNSIGNED NOT NULL,
  topic         VARBINARY(64)    NOT NULL,
  message_key   VARBINARY(191)   NULL,
  live_key      VARBINARY(191)   NULL,
  generation    INT UNSIGNED     NOT NULL DEFAULT 1,
  revision      INT UNSIGNED     NOT NULL DEFAULT 1,
  held          BOOLEAN          NOT NULL DEFAULT FALSE,
  untracked     BOOLEAN          NOT NULL DEFAULT FALSE,
  state         ENUM('scheduled', 'published', 'done', 'canceled', 'dead') NOT NULL DEFAULT 'scheduled',
  due_at        DATETIME(6)      NOT NULL,
  available_at  DATETIME(6)      NULL,
  attempts      INT UNSIGNED     NOT NULL DEFAULT 0,
  begins        TINYINT UNSIGNED NOT NULL DEFAULT 0,
  publishes     INT UNSIGNED     NOT NULL DEFAULT 0,
  repairs       INT UNSIGNED     NOT NULL DEFAULT 0,
  broker_epoch  BIGINT           NOT NULL DEFAULT 0,
  content_type  VARBINARY(127)   NOT NULL,
  headers       BLOB             NULL,
  payload       MEDIUMBLOB       NOT NULL,
  last_error    VARCHAR(1000)    NULL,
  failed_at     DATETIME(6)      NULL,
  created_at    DATETIME(6)      NOT NULL,
  published_at  DATETIME(6)      NOT NULL DEFAULT '1970-01-01 00:00:00',
  finished_at   DATETIME(6)      NULL,
  PRIMARY KEY (id),
  UNIQUE KEY live (topic, live_key),
  KEY due (state, shard, available_at),
  CONSTRAINT shard_known CHECK (shard < 16),
  CONSTRAINT times_known CHECK (due_at >= '1970-01-01' AND IF(available_at IS NULL, state = 'dead', available_at >= '1970-01-01'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS outbox_messages;
