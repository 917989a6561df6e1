-- +goose Up
-- One row for each run of the reconciler, from when it is requested or begun. Only who holds the lock of a kind runs it, so a
-- row of that kind that is still running when another takes the lock belongs to a process that has ended.
CREATE TABLE IF NOT EXISTS outbox_reconcile_runs (
  id           BIGINT        NOT NULL AUTO_INCREMENT,
  kind         ENUM('pass', 'audit', 'rearm', 'purge') NOT NULL,
  state        ENUM('requested', 'running', 'completed', 'incomplete') NOT NULL,
  dry_run      BOOLEAN       NOT NULL DEFAULT FALSE,
  owner        VARBINARY(64) NULL,
  report       MEDIUMBLOB    NULL,
  last_error   VARCHAR(1000) NULL,
  requested_at DATETIME(6)   NOT NULL,
  started_at   DATETIME(6)   NULL,
  finished_at  DATETIME(6)   NULL,
  PRIMARY KEY (id),
  KEY by_state (state, kind, dry_run, finished_at),
  KEY by_age (requested_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS outbox_reconcile_runs;
