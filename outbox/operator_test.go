package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

// ann is who acts in tests.
func ann() outbox.Actor { return outbox.Actor{Name: "Ann Ünal", Via: "cli"} }

func (l ledger) operator() *outbox.Operator { return l.Operator(outbox.OperatorConfig{}) }

// act does something to a message.
func (l ledger) act(t *testing.T, id int64, a outbox.Action) outbox.Record {
	t.Helper()
	r, err := l.operator().Act(t.Context(), ann(), id, outbox.Command{Action: a})
	require.NoError(t, err)
	return r
}

// audited are the actions on a message that are in the audit table, the newest first.
func (l ledger) audited(t *testing.T, id int64) (actions []outbox.Action) {
	t.Helper()
	entries, err := l.operator().Audit(t.Context(), outbox.AuditFilter{MessageID: id, Limit: 1000})
	require.NoError(t, err)
	for _, e := range entries {
		actions = append(actions, e.Action)
	}
	return actions
}

func TestRequeue_GivesADeadMessageAnotherLife(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{MaxAttempts: 2, Backoff: func(int) time.Duration { return 0 }})
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	var mended atomic.Bool
	l.consume(t, broker, 1, func(*sql.Tx, outbox.Delivery) error {
		if mended.Load() {
			return nil
		}
		return errEffect
	})
	m := l.enqueue(t, outbox.Message{Key: "1"})
	eventually(t, "is dead", func() bool { return l.record(t, m.ID).State == outbox.Dead })
	dead := l.record(t, m.ID)
	require.Equal(t, errEffect.Error(), dead.LastError)
	require.False(t, dead.FailedAt.IsZero())
	require.True(t, dead.AvailableAt.IsZero())
	mended.Store(true)
	require.Equal(t, outbox.Scheduled, l.act(t, m.ID, outbox.ActRequeue).State)
	eventually(t, "takes effect", func() bool { return l.record(t, m.ID).State == outbox.Done })
	done := l.record(t, m.ID)
	require.Empty(t, done.LastError, "it was of the attempts before")
	require.True(t, done.FailedAt.IsZero())
	_, err := l.operator().Act(t.Context(), ann(), m.ID, outbox.Command{Action: outbox.ActRequeue})
	require.ErrorIs(t, err, outbox.ErrWrongState)
	_, err = l.operator().Act(t.Context(), ann(), 1<<40, outbox.Command{Action: outbox.ActRequeue})
	require.ErrorIs(t, err, outbox.ErrNoMessage)

	require.Equal(t, []outbox.Action{outbox.ActRequeue}, l.audited(t, m.ID), "what was refused is not in it")
	entries, err := l.operator().Audit(t.Context(), outbox.AuditFilter{Actor: ann().Name, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, ann(), entries[0].Actor)
	require.Equal(t, "1", entries[0].Key)
	require.Contains(t, entries[0].Detail, "was dead, due ")
	require.Contains(t, entries[0].Detail, "after 2 attempts: "+errEffect.Error())
}

func TestAct_DoesWhatItsStateAllows(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	commands := []outbox.Command{
		{Action: outbox.ActRequeue},
		{Action: outbox.ActCancel},
		{Action: outbox.ActReschedule, Delay: 2 * time.Hour},
		{Action: outbox.ActPublishNow},
	}
	for _, c := range commands {
		for state, column := range map[outbox.State]string{
			outbox.Scheduled: "available_at", outbox.Published: "available_at", outbox.Dead: "NULL", outbox.Done: "available_at", outbox.Canceled: "available_at",
		} {
			m := l.enqueue(t, outbox.Message{Key: string(state), Topic: string(c.Action), Delay: time.Hour})
			before := l.record(t, m.ID)
			l.exec(t, `UPDATE outbox_messages SET state = ?, attempts = 2, available_at = `+column+`,
				live_key = IF(state IN ('done', 'canceled'), NULL, live_key) WHERE id = ?`, state, m.ID)
			r, err := l.operator().Act(t.Context(), ann(), m.ID, c)
			live := state == outbox.Scheduled || state == outbox.Published || state == outbox.Dead
			if c.Action == outbox.ActRequeue && state != outbox.Dead || !live {
				require.ErrorIs(t, err, outbox.ErrWrongState, "%s of %s", c.Action, state)
				require.ErrorContains(t, err, "it is "+string(state))
				require.Empty(t, l.audited(t, m.ID))
				require.Equal(t, state, l.record(t, m.ID).State)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, []outbox.Action{c.Action}, l.audited(t, m.ID))
			now, err := l.Now(t.Context())
			require.NoError(t, err)
			switch c.Action {
			case outbox.ActRequeue:
				require.Equal(t, outbox.Scheduled, r.State)
				require.Equal(t, before.DueAt, r.DueAt)
				require.Equal(t, before.Generation, r.Generation)
			case outbox.ActCancel:
				require.Equal(t, outbox.Canceled, r.State)
				require.False(t, r.FinishedAt.IsZero())
				continue
			case outbox.ActReschedule:
				require.WithinDuration(t, now.Add(2*time.Hour), r.DueAt, time.Minute)
				require.Equal(t, before.Generation+1, r.Generation)
			case outbox.ActPublishNow:
				require.WithinDuration(t, now, r.DueAt, time.Minute)
				require.Equal(t, before.Generation+1, r.Generation)
			}
			require.Equal(t, outbox.Scheduled, r.State)
			require.Zero(t, r.Attempts)
		}
	}
}

// A message that is late stays so: its due time is what its lateness is measured by, and what an order's is compared with.
func TestPublishNow_KeepsADueTimeThatIsOver(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{Key: "1", Delay: -time.Hour})
	l.exec(t, "UPDATE outbox_messages SET available_at = UTC_TIMESTAMP(6) + INTERVAL 600 SECOND, created_at = due_at, attempts = 3, last_error = 'x'")
	before := l.record(t, m.ID)
	r := l.act(t, m.ID, outbox.ActPublishNow)
	require.Equal(t, before.DueAt, r.DueAt)
	require.True(t, r.AvailableAt.Before(before.AvailableAt.Add(-5*time.Minute)), "it waits for nothing")
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	l.consume(t, broker, 1, func(*sql.Tx, outbox.Delivery) error { return nil })
	eventually(t, "takes effect", func() bool { return l.record(t, m.ID).State == outbox.Done })
	done := l.record(t, m.ID)
	late, known := done.Lateness()
	require.True(t, known)
	require.Greater(t, late, time.Hour)
}

func TestAct_RefusesWhatBreaksARule(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{Key: "1", Delay: time.Hour})
	for name, try := range map[string]struct {
		by outbox.Actor
		c  outbox.Command
	}{
		"nobody":           {outbox.Actor{Via: "api"}, outbox.Command{Action: outbox.ActCancel}},
		"a long name":      {outbox.Actor{Name: longText(65), Via: "api"}, outbox.Command{Action: outbox.ActCancel}},
		"a line break":     {outbox.Actor{Name: "a\nb", Via: "api"}, outbox.Command{Action: outbox.ActCancel}},
		"from nowhere":     {outbox.Actor{Name: "a"}, outbox.Command{Action: outbox.ActCancel}},
		"no action":        {ann(), outbox.Command{}},
		"another action":   {ann(), outbox.Command{Action: "purge"}},
		"a time for none":  {ann(), outbox.Command{Action: outbox.ActCancel, Delay: time.Hour}},
		"a time too far":   {ann(), outbox.Command{Action: outbox.ActReschedule, DueAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"a delay below 0":  {ann(), outbox.Command{Action: outbox.ActReschedule, Delay: -1}},
		"a delay too long": {ann(), outbox.Command{Action: outbox.ActReschedule, Delay: 1 << 62}},
	} {
		_, err := l.operator().Act(t.Context(), try.by, m.ID, try.c)
		require.ErrorIs(t, err, outbox.ErrInvalidMessage, name)
		_, err = l.operator().Bulk(t.Context(), try.by, outbox.Bulk{Command: try.c, Filter: outbox.Filter{Key: "1"}, Limit: 1})
		require.ErrorIs(t, err, outbox.ErrInvalidMessage, name)
	}
	require.Empty(t, l.audited(t, m.ID))
	require.Equal(t, int64(1), l.record(t, m.ID).Generation)
}

func TestAct_AsksTheApplication(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{Key: "1", Delay: time.Hour})
	errAsk := errors.New("cannot tell")
	var answer error
	o := l.Operator(outbox.OperatorConfig{Protect: func(_ context.Context, c outbox.Command, r outbox.Record) error {
		require.Equal(t, outbox.ActCancel, c.Action)
		require.Equal(t, m.ID, r.ID)
		return answer
	}})
	cancel := outbox.Command{Action: outbox.ActCancel}
	answer = &outbox.ProtectedError{Err: errors.New("cancel the order instead")}
	_, err := o.Act(t.Context(), ann(), m.ID, cancel)
	require.ErrorAs(t, err, new(*outbox.ProtectedError))
	require.ErrorContains(t, err, "cancel the order instead")
	res, err := o.Bulk(t.Context(), ann(), outbox.Bulk{Command: cancel, Filter: outbox.Filter{Key: "1"}, Limit: 9})
	require.NoError(t, err)
	require.Equal(t, outbox.BulkResult{Matched: 1, Protected: 1, Why: "cancel the order instead", Began: res.Began}, res)
	answer = errAsk
	_, err = o.Act(t.Context(), ann(), m.ID, cancel)
	require.ErrorIs(t, err, errAsk)
	_, err = o.Bulk(t.Context(), ann(), outbox.Bulk{Command: cancel, Filter: outbox.Filter{Key: "1"}, Limit: 9})
	require.ErrorIs(t, err, errAsk)
	require.Equal(t, outbox.Scheduled, l.record(t, m.ID).State)
	require.Empty(t, l.audited(t, m.ID))
	answer = nil
	_, err = o.Act(t.Context(), ann(), m.ID, cancel)
	require.NoError(t, err)
}

// The entry and the action are one transaction: neither is there without the other.
func TestAct_IsAuditedIfAndOnlyIfItCommitted(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	const messages, actors = 20, 6
	ids := make([]int64, messages)
	for i := range ids {
		ids[i] = l.enqueue(t, outbox.Message{Delay: time.Hour}).ID
	}
	// A name that the table cannot take makes some of the transactions fail after their update.
	l.exec(t, "ALTER TABLE outbox_audit ADD CONSTRAINT no_mallory CHECK (actor <> 'mallory')")
	var wg sync.WaitGroup
	var done, failed atomic.Int64
	for i := range actors {
		wg.Go(func() {
			by := outbox.Actor{Name: []string{"ann", "mallory"}[i%2], Via: "api"}
			for _, id := range ids {
				_, err := l.operator().Act(context.Background(), by, id, outbox.Command{Action: outbox.ActReschedule, Delay: time.Duration(i) * time.Minute})
				if err == nil {
					done.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, failed.Load(), int64(messages*actors/2))
	require.Positive(t, done.Load())
	require.Equal(t, int(done.Load()), l.scalar(t, "SELECT COUNT(*) FROM outbox_audit"))
	for _, id := range ids {
		require.Len(t, l.audited(t, id), int(l.record(t, id).Generation)-1, "as many as there were moves")
	}
}

// Operators, a relay and consumers are at the same rows: each message takes effect once or is canceled, and the audit table says which.
func TestBulk_BesideARelayLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	const messages = 1500
	l.tx(t, func(tx *gorm.DB) error {
		for range messages {
			if err := l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test", Delay: time.Second}); err != nil {
				return err
			}
		}
		return nil
	})
	cancel := outbox.Bulk{Command: outbox.Command{Action: outbox.ActCancel}, Filter: outbox.Filter{Topic: "test"}, Limit: 150}
	first, err := l.operator().Bulk(t.Context(), ann(), cancel)
	require.NoError(t, err)
	require.Equal(t, 150, first.Changed)
	effect := l.effects(t)
	broker := newBroker(t)
	l.start(t, broker, outbox.RelayConfig{Poll: quick})
	l.consume(t, broker, 8, func(tx *sql.Tx, d outbox.Delivery) error { return effect(tx, d.ID) })
	var wg sync.WaitGroup
	var canceled atomic.Int64
	canceled.Add(int64(first.Changed))
	for _, c := range []outbox.Command{
		cancel.Command, {Action: outbox.ActPublishNow}, {Action: outbox.ActReschedule, Delay: 200 * time.Millisecond},
	} {
		wg.Go(func() {
			for range 5 {
				res, err := l.operator().Bulk(context.Background(), ann(), outbox.Bulk{Command: c, Filter: outbox.Filter{Topic: "test"}, Limit: 150})
				if err != nil {
					t.Errorf("%s: %v", c.Action, err)
				}
				if c.Action == outbox.ActCancel {
					canceled.Add(int64(res.Changed))
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "all have ended", func() bool { return l.count(t, "state IN ('done', 'canceled')") == messages })
	require.Equal(t, int(canceled.Load()), l.count(t, "state = 'canceled'"))
	require.Equal(t, int(canceled.Load()), l.scalar(t, "SELECT COUNT(*) FROM outbox_audit WHERE action = 'cancel'"))
	require.Equal(t, l.count(t, "state = 'done'"), l.scalar(t, "SELECT COUNT(*) FROM effects"))
	require.Equal(t, l.count(t, "state = 'done'"), l.scalar(t, "SELECT COUNT(DISTINCT message) FROM effects"))
	require.Zero(t, l.scalar(t, `SELECT COUNT(*) FROM outbox_messages AS m WHERE generation <> 1 +
		(SELECT COUNT(*) FROM outbox_audit AS a WHERE a.message_id = m.id AND a.action IN ('reschedule', 'publish-now'))`))
}

func TestBulk_TakesWhatTheFilterPicksAndNoMore(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.tx(t, func(tx *gorm.DB) error {
		for i := range 500 {
			m := outbox.Message{Topic: []string{"mail", "push"}[i%2], Delay: time.Hour}
			if err := l.Enqueue(t.Context(), tx, &m); err != nil {
				return err
			}
		}
		return tx.Exec("UPDATE outbox_messages SET state = 'dead', available_at = NULL, last_error = IF(id % 4 = 1, 'Timeout at x', 'refused') WHERE topic = 'mail'").Error
	})
	bulk := func(b outbox.Bulk) outbox.BulkResult {
		t.Helper()
		res, err := l.operator().Bulk(t.Context(), ann(), b)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), res.Began, 10*time.Minute)
		res.Began = time.Time{}
		return res
	}
	requeue := outbox.Command{Action: outbox.ActRequeue}
	timeouts := outbox.Filter{Error: "timeout"}
	require.Equal(t, outbox.BulkResult{Matched: 125}, bulk(outbox.Bulk{Command: requeue, Filter: timeouts, Limit: 1000, DryRun: true}))
	require.Equal(t, 250, l.count(t, "state = 'dead'"))
	first, err := l.operator().Bulk(t.Context(), ann(), outbox.Bulk{Command: requeue, Filter: timeouts, Limit: 50})
	require.NoError(t, err)
	require.Equal(t, 50, first.Changed)
	require.NotEmpty(t, first.Next)
	rest := bulk(outbox.Bulk{Command: requeue, Filter: timeouts, Limit: 1000, After: first.Next, Began: first.Began})
	require.Equal(t, outbox.BulkResult{Matched: 75, Changed: 75}, rest)
	require.Equal(t, 125, l.count(t, "state = 'dead' AND last_error = 'refused'"))
	require.Equal(t, 125, l.count(t, "topic = 'mail' AND state = 'scheduled' AND last_error IS NULL"))
	require.Equal(t, 125, l.scalar(t, "SELECT COUNT(*) FROM outbox_audit WHERE action = 'requeue' AND detail LIKE '%Timeout at x'"))

	// What was moved is met again later in the walk, and left alone.
	moved := bulk(outbox.Bulk{Command: outbox.Command{Action: outbox.ActReschedule, Delay: 9 * time.Hour}, Filter: outbox.Filter{State: outbox.Scheduled}, Limit: 10_000})
	require.Equal(t, outbox.BulkResult{Matched: 375, Changed: 375}, moved)
	require.Equal(t, 375, l.count(t, "generation = 2"))

	unlock := l.lock(t, 2)
	locked := bulk(outbox.Bulk{Command: outbox.Command{Action: outbox.ActCancel}, Filter: outbox.Filter{Topic: "push"}, Limit: 10_000})
	unlock()
	require.Equal(t, outbox.BulkResult{Matched: 250, Changed: 249}, locked, "somebody is at one of them")

	for name, b := range map[string]outbox.Bulk{
		"no filter":             {Command: requeue, Limit: 1},
		"no limit":              {Command: requeue, Filter: timeouts},
		"a limit too large":     {Command: requeue, Filter: timeouts, Limit: 10_001},
		"a state that is wrong": {Command: requeue, Filter: outbox.Filter{State: outbox.Done}, Limit: 1},
		"a position of others":  {Command: requeue, Filter: timeouts, Limit: 1, After: "x", Began: first.Began},
		"no time with it":       {Command: requeue, Filter: timeouts, Limit: 1, After: first.Next},
		"a time to come":        {Command: requeue, Filter: timeouts, Limit: 1, Began: time.Now().Add(time.Hour)},
		"another filter":        {Command: requeue, Filter: outbox.Filter{Error: "refused"}, Limit: 1, After: first.Next, Began: first.Began},
		"another action":        {Command: outbox.Command{Action: outbox.ActCancel}, Filter: timeouts, Limit: 1, After: first.Next, Began: first.Began},
		"a time before 1970":    {Command: requeue, Filter: timeouts, Limit: 1, Began: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		_, err := l.operator().Bulk(t.Context(), ann(), b)
		require.ErrorIs(t, err, outbox.ErrInvalidMessage, name)
	}
}

// A bulk that takes several calls, or is counted first, is over the messages that were there when it began, and acts on each once,
// wherever they move meanwhile.
func TestBulk_OfSeveralCallsIsOverTheSameMessages(t *testing.T) {
	t.Parallel()
	const messages = 500
	for name, c := range map[string]outbox.Command{
		"reschedule":        {Action: outbox.ActReschedule, Delay: 9 * time.Hour},
		"reschedule sooner": {Action: outbox.ActReschedule, Delay: time.Minute},
		"publish now":       {Action: outbox.ActPublishNow},
		"cancel":            {Action: outbox.ActCancel},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, outbox.StoreConfig{})
			fill := func() {
				l.tx(t, func(tx *gorm.DB) error {
					for i := range messages {
						if err := l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test", Delay: time.Duration(i) * time.Minute}); err != nil {
							return err
						}
					}
					return nil
				})
			}
			fill()
			l.exec(t, "UPDATE outbox_messages SET state = 'dead', available_at = NULL WHERE id % 10 = 0")
			b := outbox.Bulk{Command: c, Filter: outbox.Filter{Topic: "test"}, Limit: outbox.MaxBulk, DryRun: true}
			counted, err := l.operator().Bulk(t.Context(), ann(), b)
			require.NoError(t, err)
			require.Equal(t, messages, counted.Matched)
			fill() // are none of its business
			b.DryRun, b.Limit, b.Began = false, 70, counted.Began
			changed := 0
			for calls := 0; ; calls++ {
				require.Less(t, calls, 3*messages/b.Limit, "it ends")
				res, err := l.operator().Bulk(t.Context(), ann(), b)
				require.NoError(t, err)
				changed += res.Changed
				if b.After = res.Next; calls == 2 {
					b.After = "" // begun again, it goes on with what is left
				} else if res.Next == "" {
					break
				}
			}
			require.Equal(t, messages, changed)
			require.Equal(t, messages, l.scalar(t, "SELECT COUNT(DISTINCT message_id) FROM outbox_audit"))
			require.Equal(t, messages, l.scalar(t, "SELECT COUNT(*) FROM outbox_audit"))
		})
	}
}

// What has moved on since it was read, or was locked, is tried again, wherever it is then.
func TestBulk_MeetsAgainWhatItHasMissed(t *testing.T) {
	t.Parallel()
	const messages = 300
	for name, filter := range map[string]outbox.Filter{"by state": {State: outbox.Scheduled}, "by states": {DueFrom: time.Now()}, "by key": {Topic: "test"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, outbox.StoreConfig{})
			for i := range messages {
				l.enqueue(t, outbox.Message{Key: fmt.Sprint(i), Delay: time.Hour + time.Duration(i)*time.Second})
			}
			moved := map[int64]bool{}
			o := l.Operator(outbox.OperatorConfig{Protect: func(_ context.Context, _ outbox.Command, r outbox.Record) error {
				if r.ID%100 == 7 && !moved[r.ID] {
					moved[r.ID] = true
					l.exec(t, "UPDATE outbox_messages SET revision = revision + 1, available_at = available_at - INTERVAL 30 MINUTE WHERE id = ?", r.ID)
				}
				return nil
			}})
			res, err := o.Bulk(t.Context(), ann(), outbox.Bulk{Command: outbox.Command{Action: outbox.ActCancel}, Filter: filter, Limit: 2 * messages})
			require.NoError(t, err)
			require.Len(t, moved, 3)
			require.Equal(t, outbox.BulkResult{Matched: messages, Changed: messages, Began: res.Began}, res)
			require.Equal(t, messages, l.count(t, "state = 'canceled'"))
		})
	}
}

// What the application protects does not keep a bulk from the others behind it.
func TestBulk_PassesWhatIsProtected(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for i := range 60 {
		l.enqueue(t, outbox.Message{Key: fmt.Sprint(i), Delay: time.Hour + time.Duration(i)*time.Second})
	}
	o := l.Operator(outbox.OperatorConfig{Protect: func(_ context.Context, _ outbox.Command, r outbox.Record) error {
		if r.ID <= 50 {
			return &outbox.ProtectedError{Err: errors.New("not this one")}
		}
		return nil
	}})
	b := outbox.Bulk{Command: outbox.Command{Action: outbox.ActCancel}, Filter: outbox.Filter{State: outbox.Scheduled}, Limit: 5}
	res, err := o.Bulk(t.Context(), ann(), b)
	require.NoError(t, err)
	require.Equal(t, 5, res.Changed)
	require.Equal(t, 50, res.Protected)
	b.After, b.Began, b.Limit = res.Next, res.Began, 100
	res, err = o.Bulk(t.Context(), ann(), b)
	require.NoError(t, err)
	require.Equal(t, 5, res.Changed)
	require.Empty(t, res.Next)
}
