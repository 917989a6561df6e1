package worker

import (
	"context"
	"log/slog"
)

// warnOfIsolation logs that the pool's sessions do not run READ COMMITTED. Promises hold under other levels too, but locks on the gaps between rows
// have writers wait for each other. A database that is away is not asked again.
func (w *Worker) warnOfIsolation(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var name, level string
	err := w.pool.QueryRowContext(ctx, `SHOW SESSION VARIABLES WHERE variable_name IN ('transaction_isolation', 'tx_isolation')`).Scan(&name, &level)
	if err == nil && level != "READ-COMMITTED" {
		w.log.LogAttrs(ctx, slog.LevelWarn, "the database's sessions do not run READ COMMITTED, writers will wait for each other", slog.String("isolation", level))
	}
}
