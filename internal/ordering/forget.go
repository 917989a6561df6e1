package ordering

import (
	"context"
	"time"
)

const (
	forgetRows = 100
	// Forgetting rests for so many times as long as it worked.
	forgetRest = 4
)

// Forget deletes idempotency keys older than KeyLife and what is known of effects older than Config.Retention, and returns how
// many rows. It works in small chunks and rests for a multiple of what each took, so that orders hardly notice.
func (s *Service) Forget(ctx context.Context) (int64, error) {
	keys, err := s.inChunks(ctx, "forget idempotency keys", func(ctx context.Context) (int64, error) {
		// index: by_age
		res := s.db.WithContext(ctx).Exec(`DELETE FROM idempotency_keys
			WHERE used_at <= UTC_TIMESTAMP(6) - INTERVAL ? SECOND ORDER BY used_at LIMIT ?`, int64(KeyLife/time.Second), forgetRows)
		return res.RowsAffected, res.Error
	})
	if err != nil {
		return keys, err
	}
	var after int64 // spares reading again what was deleted and is not purged yet
	effects, err := s.inChunks(ctx, "forget effects", func(ctx context.Context) (int64, error) {
		n, last, err := s.forgetEffects(ctx, after)
		after = last
		return n, err
	})
	return keys + effects, err
}

// forgetEffects deletes the oldest effects up to the first that is kept. Ids grow with time, as near as matters here.
func (s *Service) forgetEffects(ctx context.Context, after int64) (n, last int64, err error) {
	var rows []struct {
		ID  int64
		Old bool
	}
	// index: primary
	err = s.db.WithContext(ctx).Raw(`SELECT id, effected_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AS old
		FROM effects WHERE id > ? ORDER BY id LIMIT ?`, s.cfg.Retention.Microseconds(), after, forgetRows).Scan(&rows).Error
	if err != nil {
		return 0, after, err
	}
	ids := make([]int64, 0, len(rows))
	for _, row := range rows {
		if !row.Old {
			break
		}
		ids = append(ids, row.ID)
	}
	if len(ids) == 0 {
		return 0, after, nil
	}
	res := s.db.WithContext(ctx).Exec(`DELETE FROM effects WHERE id IN ?`, ids)
	return res.RowsAffected, ids[len(ids)-1], res.Error
}

// inChunks repeats one until it deletes less than a full chunk.
func (s *Service) inChunks(ctx context.Context, what string, one func(ctx context.Context) (int64, error)) (int64, error) {
	for total := int64(0); ; {
		began := time.Now()
		n, err := run(ctx, s, what, one)
		total += n
		if err != nil || n < forgetRows {
			return total, err
		}
		rest := time.NewTimer(forgetRest * time.Since(began))
		select {
		case <-ctx.Done():
			rest.Stop()
			return total, ctx.Err()
		case <-rest.C:
		}
	}
}
