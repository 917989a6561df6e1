package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

// reconciler returns one on the ledger.
func (l ledger) reconciler(t *testing.T, cfg outbox.ReconcileConfig) *outbox.Reconciler {
	t.Helper()
	rec, err := outbox.NewReconciler(l.Store, cfg)
	require.NoError(t, err)
	return rec
}

// overdue enqueues n messages and makes them published and overdue.
func (l ledger) overdue(t *testing.T, n int) {
	t.Helper()
	l.exec(t, `INSERT INTO outbox_messages (shard, topic, content_type, payload, state, due_at, available_at, created_at)
		SELECT seq % 16, 'test', 'a/b', '', 'published', '2026-01-01', UTC_TIMESTAMP(6), '2026-01-01' FROM `+numbers(n))
}

// rows is the whole ledger, to be compared.
func (l ledger) rows(t *testing.T) []map[string]any {
	t.Helper()
	var rows []map[string]any
	require.NoError(t, l.db.Raw("SELECT * FROM outbox_messages ORDER BY id").Scan(&rows).Error)
	return rows
}

func (l ledger) run(t *testing.T, id int64) outbox.Run {
	t.Helper()
	run, err := l.LookupRun(t.Context(), id)
	require.NoError(t, err)
	return run
}

func TestReconciler_LeavesARecordOfEachRun(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rec := l.reconciler(t, outbox.ReconcileConfig{Owner: "me"})
	_, err := l.LastRun(t.Context(), outbox.RunPass)
	require.ErrorIs(t, err, outbox.ErrNoRun)

	l.overdue(t, 450)
	report, err := rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, 450, report.Found())
	require.Equal(t, 450, report.Of(outbox.FoundOverdue).Mended)
	require.Len(t, report.Of(outbox.FoundOverdue).IDs, 100, "the report is bounded")
	require.Equal(t, 450, report.Looked["published messages"])

	run := l.run(t, report.Run)
	require.Equal(t, outbox.RunPass, run.Kind)
	require.Equal(t, outbox.RunCompleted, run.State)
	require.Equal(t, "me", run.Owner)
	require.Empty(t, run.Error)
	require.Empty(t, cmp.Diff(report, run.Report))
	require.False(t, run.FinishedAt.Before(run.StartedAt))
	last, err := l.LastRun(t.Context(), outbox.RunPass)
	require.NoError(t, err)
	require.Equal(t, run, last)

	_, err = rec.Run(t.Context(), outbox.Scope{DryRun: true})
	require.NoError(t, err)
	last, err = l.LastRun(t.Context(), outbox.RunPass)
	require.NoError(t, err)
	require.Equal(t, run, last, "a dry run proves nothing")
	_, err = l.LookupRun(t.Context(), 999)
	require.ErrorIs(t, err, outbox.ErrNoRun)
}

func TestReconciler_DryRunFindsAndChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{Observer: outbox.Observer{
		Repaired: func(why string, n int) { t.Errorf("%d repaired: %s", n, why) },
		Died:     func(why string, n int) { t.Errorf("%d died: %s", n, why) },
	}})
	l.overdue(t, 3)
	l.exec(t, "UPDATE outbox_messages SET repairs = 10 WHERE id = 2")
	l.exec(t, "UPDATE outbox_messages SET state = 'done' WHERE id = 3")
	l.exec(t, "INSERT INTO outbox_unrouted (reason, kept_at) VALUES ('old', '2026-01-01')")
	rec := l.reconciler(t, outbox.ReconcileConfig{})
	_, err := l.Raise(t.Context(), 0, true)
	require.NoError(t, err)
	before := l.rows(t)
	report, err := rec.Run(t.Context(), outbox.Scope{DryRun: true, Audit: true})
	require.NoError(t, err)
	require.True(t, report.DryRun)
	require.Equal(t, map[string]*outbox.Finding{
		// A message is found once for each reason that it has, as no reason is mended.
		outbox.FoundEpoch:    {Found: 2, IDs: []string{"1", "2"}},
		outbox.FoundOverdue:  {Found: 1, IDs: []string{"1"}},
		outbox.FoundHopeless: {Found: 1, IDs: []string{"2"}},
		outbox.FoundKept:     {Found: 1, IDs: []string{"1"}},
	}, report.Findings)
	require.Zero(t, report.Purged)
	report, err = rec.Purge(t.Context(), true)
	require.NoError(t, err)
	require.True(t, report.DryRun)
	require.Equal(t, 2, report.Purged)
	require.Empty(t, cmp.Diff(before, l.rows(t)))
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM outbox_unrouted"))
	require.Equal(t, 0, l.scalar(t, "SELECT rearms FROM outbox_meta"))
}

func TestReconciler_AuditReportsWhatWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 5)
	l.exec(t, "UPDATE outbox_messages SET state = 'dead', available_at = NULL WHERE id IN (2, 4)")
	waiting := make([]string, 2) // for relays
	for i, damage := range []string{"available_at = due_at", "available_at = due_at + INTERVAL 58 MINUTE"} {
		m := l.enqueue(t, outbox.Message{Delay: -time.Hour})
		waiting[i] = strconv.FormatInt(m.ID, 10)
		l.exec(t, "UPDATE outbox_messages SET "+damage+" WHERE id = ?", m.ID)
	}
	require.NoError(t, l.Keep(t.Context(), outbox.Stray{Reason: "malformed"}))
	require.NoError(t, l.Keep(t.Context(), outbox.Stray{Reason: "unrouted"}), "of which the message itself tells what became")
	rec := l.reconciler(t, outbox.ReconcileConfig{Checks: []outbox.Check{{Name: "own", Run: func(_ context.Context, p *outbox.Pass) error {
		p.Looked("things", 7)
		p.Found("thing_without_reason", "seven", true)
		return nil
	}}}})
	report, err := rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, 3, report.Found(), "a pass has no audit")
	report, err = rec.Run(t.Context(), outbox.Scope{Audit: true})
	require.NoError(t, err)
	require.Equal(t, map[string]*outbox.Finding{
		outbox.FoundDead:        {Found: 2, IDs: []string{"2", "4"}},
		outbox.FoundKept:        {Found: 1, IDs: []string{"1"}},
		outbox.FoundUnpublished: {Found: 1, IDs: []string{waiting[0]}},
		"thing_without_reason":  {Found: 1, Mended: 1, IDs: []string{"seven"}},
	}, report.Findings)
	require.Equal(t, map[string]int{
		"published messages": 0, "scheduled messages": 1, "dead messages": 2, "kept deliveries": 1, "things": 7,
	}, withZero(report.Looked))
	for _, kind := range []outbox.RunKind{outbox.RunAudit, outbox.RunPass} {
		last, err := l.LastRun(t.Context(), kind)
		require.NoError(t, err)
		require.Equal(t, report.Run, last.ID, "an audit is a pass as well")
	}
	report, err = rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	last, err := l.LastRun(t.Context(), outbox.RunPass)
	require.NoError(t, err)
	require.Equal(t, report.Run, last.ID)
}

// What a check makes of it must neither exceed what the server takes in one statement nor the memory of the process.
func TestReconciler_ReportsAreBounded(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rec := l.reconciler(t, outbox.ReconcileConfig{Checks: []outbox.Check{{Name: "wordy", Run: func(_ context.Context, p *outbox.Pass) error {
		for i := range 1000 {
			name := fmt.Sprint(i, strings.Repeat("x", 1000))
			p.Looked(name, 1)
			p.Found(name, strings.Repeat("é", 1<<20), true)
		}
		return nil
	}}}})
	report, err := rec.Run(t.Context(), outbox.Scope{Audit: true})
	require.NoError(t, err)
	require.Equal(t, 1000, report.Found())
	require.Len(t, report.Findings, 101)
	require.LessOrEqual(t, len(report.Looked), 101)
	require.Equal(t, 900, report.Of("other").Found)
	text, err := json.Marshal(l.run(t, report.Run).Report)
	require.NoError(t, err)
	require.Less(t, len(text), 1<<20)
	require.True(t, utf8.ValidString(report.Of("other").IDs[0]))
}

func withZero(looked map[string]int) map[string]int {
	looked["published messages"] += 0
	return looked
}

func TestReconciler_BrokenPartsKeepNothingElseFromRunning(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 450)
	// Its revision cannot be counted up any more.
	l.exec(t, "UPDATE outbox_messages SET revision = 4294967295 WHERE id = 7")
	var ran []string
	check := func(name string, run func() error) outbox.Check {
		return outbox.Check{Name: name, Run: func(context.Context, *outbox.Pass) error {
			ran = append(ran, name)
			return run()
		}}
	}
	rec := l.reconciler(t, outbox.ReconcileConfig{Checks: []outbox.Check{
		check("panics", func() error { panic("at the check") }),
		check("errs", func() error { return errAway }),
		check("works", func() error { return nil }),
	}})
	report, err := rec.Run(t.Context(), outbox.Scope{Audit: true})
	require.ErrorIs(t, err, errAway)
	require.ErrorContains(t, err, "check panics: panic: at the check")
	require.Equal(t, []string{"panics", "errs", "works"}, ran)
	require.Equal(t, outbox.Finding{Found: 1, IDs: []string{"7"}}, report.Of(outbox.FoundBroken))
	require.Zero(t, report.Of(outbox.FoundLate).Found, "a broken row is not late besides")
	require.Equal(t, 449, report.Of(outbox.FoundOverdue).Mended, "its neighbours are mended")
	require.Equal(t, 449, l.count(t, "state = 'scheduled'"))
	run := l.run(t, report.Run)
	require.Equal(t, outbox.RunIncomplete, run.State)
	require.Contains(t, run.Error, "check errs: broker away")
	require.Len(t, run.Report.Errors, 2)
	_, err = l.LastRun(t.Context(), outbox.RunAudit)
	require.ErrorIs(t, err, outbox.ErrNoRun)

	ran = nil
	_, err = rec.Run(t.Context(), outbox.Scope{Audit: true})
	require.Error(t, err)
	require.Len(t, ran, 3, "and the next run comes")
}

func TestReconciler_LeavesLockedRowsToTheNextPass(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rec := l.reconciler(t, outbox.ReconcileConfig{})
	l.overdue(t, 300)
	tx := l.db.Begin()
	require.NoError(t, tx.Error)
	require.NoError(t, tx.Exec("UPDATE outbox_messages SET held = TRUE WHERE id <= 100").Error)
	start := time.Now()
	report, err := rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Less(t, time.Since(start), 10*time.Second, "it waits for nobody's transaction")
	require.Equal(t, 200, report.Of(outbox.FoundOverdue).Mended)
	require.Equal(t, 100, report.Of(outbox.FoundLate).Found, "and tells of what it has left")
	require.NoError(t, tx.Rollback().Error)
	report, err = rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, 100, report.Of(outbox.FoundOverdue).Mended)
}

func TestReconciler_ExecutesRequestedRuns(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rec := l.reconciler(t, outbox.ReconcileConfig{})
	report, err := rec.RunRequested(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Run)

	var asked []int64
	for _, scope := range []outbox.Scope{{}, {DryRun: true}, {Audit: true}} {
		id, err := l.RequestRun(t.Context(), scope)
		require.NoError(t, err)
		again, err := l.RequestRun(t.Context(), scope)
		require.NoError(t, err)
		require.Equal(t, id, again, "one that waits is enough")
		require.Equal(t, outbox.RunRequested, l.run(t, id).State)
		asked = append(asked, id)
	}
	for i, id := range asked {
		report, err := rec.RunRequested(t.Context())
		require.NoError(t, err)
		require.Equal(t, id, report.Run)
		run := l.run(t, id)
		require.Equal(t, outbox.RunCompleted, run.State)
		require.Equal(t, i == 1, run.DryRun)
		require.Equal(t, i == 2, run.Report.Audit)
		require.False(t, run.StartedAt.Before(run.RequestedAt))
	}
	report, err = rec.RunRequested(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Run, "each once")
}

func TestReconciler_RearmRestsAndComesTwice(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rec := l.reconciler(t, outbox.ReconcileConfig{})
	held := func(ids string) {
		l.exec(t, `UPDATE outbox_messages SET state = 'published', broker_epoch = (SELECT broker_epoch FROM outbox_meta WHERE id = 1),
			available_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE id IN (`+ids+`)`)
	}
	rearm := func() (int, time.Duration) {
		report, again, err := rec.Rearm(t.Context())
		require.NoError(t, err)
		return report.Of(outbox.FoundEpoch).Mended, again
	}
	raise := func() {
		epoch, err := l.Epoch(t.Context())
		require.NoError(t, err)
		_, err = l.Raise(t.Context(), epoch, true)
		require.NoError(t, err)
	}
	l.overdue(t, 10)
	held("1, 2, 3, 4, 5, 6, 7, 8, 9, 10")
	n, again := rearm()
	require.Zero(t, n, "the broker lives on")
	require.Zero(t, again)

	raise()
	n, again = rearm()
	require.Equal(t, 10, n)
	require.Equal(t, 30*time.Second, again)
	held("1, 2, 3")
	raise()
	n, again = rearm()
	require.Zero(t, n, "a broker that restarts every few seconds is not fed everything each time")
	require.Greater(t, again, 20*time.Second)
	require.LessOrEqual(t, again, 30*time.Second)
	rested := func() {
		l.exec(t, "UPDATE outbox_meta SET rearmed_at = rearmed_at - INTERVAL 30 SECOND")
	}
	rested()
	n, _ = rearm()
	require.Equal(t, 3, n)
	// What was settled with the old epoch at that very moment.
	l.exec(t, "UPDATE outbox_messages SET state = 'published', broker_epoch = 1, available_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE id = 1")
	rested()
	n, again = rearm()
	require.Equal(t, 1, n)
	require.Equal(t, 30*time.Second, again)
	rested()
	n, again = rearm()
	require.Zero(t, n)
	require.Zero(t, again, "done with this epoch")
	require.Equal(t, 2, l.scalar(t, "SELECT rearms FROM outbox_meta"))

	l.exec(t, "UPDATE outbox_meta SET rearmed_at = UTC_TIMESTAMP(6) + INTERVAL 1 DAY")
	raise()
	_, again = rearm()
	require.LessOrEqual(t, again, 30*time.Second, "a clock that was set back makes it rest no longer")
}

func TestReconciler_RearmsWhatIsDueFirst(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 640)
	l.exec(t, "UPDATE outbox_messages SET available_at = UTC_TIMESTAMP(6) + INTERVAL IF(id <= 320, 3600, 10) SECOND")
	_, err := l.Raise(t.Context(), 0, true)
	require.NoError(t, err)
	var first []int
	rec := l.reconciler(t, outbox.ReconcileConfig{Progress: func(p outbox.Progress) {
		if p.Mended >= 320 && first == nil {
			first = []int{l.count(t, "state = 'scheduled' AND id > 320"), l.count(t, "state = 'scheduled' AND id <= 320")}
		}
	}})
	_, _, err = rec.Rearm(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{320, 0}, first)
	require.Equal(t, 640, l.count(t, "state = 'scheduled'"))
}

func TestReconciler_SendsOnceMoreWhatABusyQueueMayHide(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	depth := [2]int{5, 2}
	rec := l.reconciler(t, outbox.ReconcileConfig{Grace: 10 * time.Second, Depth: func(context.Context, string) (int, int, error) {
		return depth[0], depth[1], nil
	}})
	l.overdue(t, 1)
	pass := func() outbox.Finding {
		report, err := rec.Run(t.Context(), outbox.Scope{})
		require.NoError(t, err)
		return report.Of(outbox.FoundLate)
	}
	late := outbox.Finding{Found: 1, IDs: []string{"1"}}
	require.Equal(t, late, pass())
	l.exec(t, "UPDATE outbox_messages SET available_at = UTC_TIMESTAMP(6) - INTERVAL 90 SECOND")
	depth = [2]int{5, 0}
	require.Equal(t, late, pass(), "nobody would take it")
	depth = [2]int{5, 2}
	require.Equal(t, outbox.Finding{Found: 1, Mended: 1, IDs: []string{"1"}}, pass())
	l.exec(t, "UPDATE outbox_messages SET state = 'published', available_at = UTC_TIMESTAMP(6) - INTERVAL 1 DAY")
	require.Equal(t, late, pass(), "once")
}

// A pass ends soon when it is told to, leaves each row as it was or as it should be, and a true record.
func TestScenario33_PassThatIsEndedInTheMiddleStopsCleanly(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 20_000)
	ctx, cancel := context.WithCancelCause(t.Context())
	told := errors.New("SIGTERM")
	rec := l.reconciler(t, outbox.ReconcileConfig{Progress: func(p outbox.Progress) {
		if p.Mended >= 1000 {
			cancel(told)
		}
	}})
	start := time.Now()
	report, err := rec.Run(ctx, outbox.Scope{})
	require.ErrorIs(t, err, told)
	require.Less(t, time.Since(start), 10*time.Second)
	mended := report.Of(outbox.FoundOverdue).Mended
	require.GreaterOrEqual(t, mended, 1000)
	require.Less(t, mended, 20_000)
	scheduled := l.count(t, "state = 'scheduled' AND repairs = 1 AND revision = 2")
	require.Equal(t, 20_000-scheduled, l.count(t, "state = 'published' AND repairs = 0 AND revision = 1"))
	require.InDelta(t, scheduled, mended, 200, "the chunk under way may be written without being counted")
	run := l.run(t, report.Run)
	require.Equal(t, outbox.RunIncomplete, run.State)
	require.Contains(t, run.Error, "the run was ended: SIGTERM")
	require.Equal(t, scheduled, l.count(t, "state = 'scheduled'"), "nothing is written afterwards")

	report, err = l.reconciler(t, outbox.ReconcileConfig{}).Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.False(t, report.Skipped, "the lock was given back")
	require.Equal(t, 20_000, l.count(t, "state = 'scheduled' AND repairs = 1"))
}

func TestScenario32_ReplicasRepairEachRowOnceAndHandOverWhenTheHolderDies(t *testing.T) {
	t.Parallel()
	dsn := devDSN(t)
	const lost = 1000
	replicas := []ledger{openLedger(t, dsn, outbox.StoreConfig{}), openLedger(t, dsn, outbox.StoreConfig{}), openLedger(t, dsn, outbox.StoreConfig{})}
	l := replicas[0]
	for pass := 1; pass <= 3; pass++ {
		l.exec(t, "DELETE FROM outbox_messages")
		l.overdue(t, lost)
		var (
			wg     sync.WaitGroup
			mu     sync.Mutex
			mended int
		)
		for _, replica := range replicas {
			rec := replica.reconciler(t, outbox.ReconcileConfig{})
			wg.Go(func() {
				report, err := rec.Run(t.Context(), outbox.Scope{})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				mended += report.Of(outbox.FoundOverdue).Mended
			})
		}
		wg.Wait()
		require.Equal(t, lost, mended)
		require.Equal(t, lost, l.count(t, "state = 'scheduled' AND repairs = 1"))
	}

	// The holder's connection dies in the middle of its pass.
	l.exec(t, "DELETE FROM outbox_messages")
	l.overdue(t, lost)
	inside, leave := make(chan struct{}), make(chan struct{})
	holder := replicas[1].reconciler(t, outbox.ReconcileConfig{Owner: "holder", Depth: func(context.Context, string) (int, int, error) {
		close(inside)
		<-leave
		return 0, 1, nil
	}})
	ended := make(chan error, 1)
	go func() {
		_, err := holder.Run(context.Background(), outbox.Scope{})
		ended <- err
	}()
	<-inside
	heir := replicas[2].reconciler(t, outbox.ReconcileConfig{})
	report, err := heir.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.True(t, report.Skipped)
	l.exec(t, fmt.Sprintf("KILL %d", l.scalar(t, "SELECT IS_USED_LOCK(CONCAT('duebox.pass.', LEFT(SHA2(DATABASE(), 256), 32)))")))
	eventually(t, "the heir makes the pass", func() bool {
		report, err = heir.Run(t.Context(), outbox.Scope{})
		require.NoError(t, err)
		return !report.Skipped
	})
	require.Equal(t, lost, report.Of(outbox.FoundOverdue).Mended)
	close(leave)
	require.Error(t, <-ended)
	require.Equal(t, lost, l.count(t, "state = 'scheduled' AND repairs = 1"), "the dead holder wrote nothing more")
	require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM outbox_reconcile_runs WHERE owner = 'holder' AND state = 'incomplete'"))
}

func TestReconciler_GivesItsLockBackBeforeItReturns(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rec := l.reconciler(t, outbox.ReconcileConfig{})
	for range 100 {
		report, err := rec.Run(t.Context(), outbox.Scope{Audit: true})
		require.NoError(t, err)
		require.False(t, report.Skipped)
	}
}

func TestReconciler_AnAuditHoldsUpNoPass(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	inside, leave := make(chan struct{}), make(chan struct{})
	audit := l.reconciler(t, outbox.ReconcileConfig{Checks: []outbox.Check{{Name: "long", Run: func(context.Context, *outbox.Pass) error {
		close(inside)
		<-leave
		return nil
	}}}})
	ended := make(chan error, 1)
	go func() {
		_, err := audit.Run(context.Background(), outbox.Scope{Audit: true})
		ended <- err
	}()
	<-inside
	l.overdue(t, 3)
	rec := l.reconciler(t, outbox.ReconcileConfig{})
	report, err := rec.Run(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	require.Equal(t, 3, report.Of(outbox.FoundOverdue).Mended)
	report, err = rec.Run(t.Context(), outbox.Scope{Audit: true})
	require.NoError(t, err)
	require.True(t, report.Skipped)
	audited, err := l.RequestRun(t.Context(), outbox.Scope{Audit: true})
	require.NoError(t, err)
	passed, err := l.RequestRun(t.Context(), outbox.Scope{})
	require.NoError(t, err)
	report, err = rec.RunRequested(t.Context())
	require.NoError(t, err)
	require.Equal(t, passed, report.Run, "nor a requested one")
	require.Equal(t, outbox.RunRequested, l.run(t, audited).State)
	close(leave)
	require.NoError(t, <-ended)
}

func TestReconciler_AnAuditLeavesToAnotherWhatThatIsAt(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 1)
	inside, leave := make(chan struct{}), make(chan struct{})
	pass := l.reconciler(t, outbox.ReconcileConfig{Depth: func(context.Context, string) (int, int, error) {
		close(inside)
		<-leave
		return 0, 1, nil
	}})
	ended := make(chan error, 1)
	go func() {
		_, err := pass.Run(context.Background(), outbox.Scope{})
		ended <- err
	}()
	<-inside
	report, err := l.reconciler(t, outbox.ReconcileConfig{}).Run(t.Context(), outbox.Scope{Audit: true})
	require.NoError(t, err)
	require.Equal(t, []string{"the pass"}, report.Left)
	close(leave)
	require.NoError(t, <-ended)
}

func TestReconciler_SaysThatItsConnectionWasLost(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rec := l.reconciler(t, outbox.ReconcileConfig{Checks: []outbox.Check{{Name: "long", Run: func(ctx context.Context, _ *outbox.Pass) error {
		l.exec(t, fmt.Sprintf("KILL %d", l.scalar(t, "SELECT IS_USED_LOCK(CONCAT('duebox.audit.', LEFT(SHA2(DATABASE(), 256), 32)))")))
		<-ctx.Done()
		return ctx.Err()
	}}}})
	report, err := rec.Run(t.Context(), outbox.Scope{Audit: true})
	require.ErrorContains(t, err, "the reconciler's connection was lost")
	require.Equal(t, outbox.RunIncomplete, l.run(t, report.Run).State)
}

func TestReconciler_WithoutTheRightToWriteNoRowIsToBlame(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 3)
	l.exec(t, "ALTER TABLE outbox_messages DROP COLUMN last_error")
	report, err := l.reconciler(t, outbox.ReconcileConfig{}).Run(t.Context(), outbox.Scope{})
	require.ErrorContains(t, err, "last_error")
	require.Zero(t, report.Of(outbox.FoundBroken).Found)
}

func TestLive_WalksInTheOrderOfBytes(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for _, key := range []string{"b", "B", "a ", "a", "\u00e9", "z"} {
		l.enqueue(t, outbox.Message{Key: key})
	}
	l.enqueue(t, outbox.Message{})
	l.enqueue(t, outbox.Message{Topic: "other", Key: "c"})
	l.exec(t, "UPDATE outbox_messages SET state = 'done', live_key = NULL WHERE message_key = 'z'")
	var all []string
	for after := ""; ; {
		page, err := l.Live(t.Context(), "test", after, 2)
		require.NoError(t, err)
		for _, m := range page {
			all = append(all, m.Key)
			r, err := l.Lookup(t.Context(), "test", m.Key)
			require.NoError(t, err)
			require.Equal(t, r.DueAt, m.DueAt)
		}
		if len(page) < 2 {
			break
		}
		after = page[1].Key
	}
	require.Equal(t, []string{"B", "a", "a ", "b", "\u00e9"}, all)
	var plan []map[string]any
	require.NoError(t, l.db.Raw(`EXPLAIN FORMAT=TRADITIONAL SELECT live_key, due_at FROM outbox_messages FORCE INDEX (live)
		WHERE topic = 'test' AND live_key > 'a' ORDER BY live_key LIMIT 100`).Scan(&plan).Error)
	require.Len(t, plan, 1)
	require.Equal(t, "live", plan[0]["key"])
	require.NotContains(t, plan[0]["Extra"], "filesort")
}

func TestReconciler_SurvivesChecksThatDoNotReturn(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	leave, left := make(chan struct{}), make(chan struct{})
	ran := false
	rec := l.reconciler(t, outbox.ReconcileConfig{Checks: []outbox.Check{
		{Name: "exits", Run: func(context.Context, *outbox.Pass) error {
			runtime.Goexit()
			return nil
		}},
		{Name: "next", Run: func(context.Context, *outbox.Pass) error {
			ran = true
			return nil
		}},
		{Name: "hangs", Run: func(_ context.Context, p *outbox.Pass) error {
			defer close(left)
			cancel()
			<-leave
			p.Looked("things", 1)
			p.Found("thing", "late", false)
			return nil
		}},
	}})
	report, err := rec.Run(ctx, outbox.Scope{Audit: true})
	require.ErrorContains(t, err, "check exits: it ended its goroutine")
	require.ErrorContains(t, err, "check hangs: it has not returned after its context ended")
	require.True(t, ran)
	require.Equal(t, outbox.RunIncomplete, l.run(t, report.Run).State)
	close(leave)
	<-left
	require.Zero(t, report.Found(), "what comes after the report is not heard")
	again, err := l.reconciler(t, outbox.ReconcileConfig{}).Run(t.Context(), outbox.Scope{Audit: true})
	require.NoError(t, err)
	require.False(t, again.Skipped)
}

// The grace was shortened while messages were in the broker: that makes none late.
func TestReconciler_RearmsForTheDueTimeWhateverTheGraceWas(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.overdue(t, 2)
	l.exec(t, "UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL 20 SECOND, available_at = UTC_TIMESTAMP(6) + INTERVAL 620 SECOND")
	l.exec(t, "UPDATE outbox_messages SET attempts = 1, due_at = '2026-01-01', available_at = UTC_TIMESTAMP(6) + INTERVAL 90 SECOND WHERE id = 2")
	_, err := l.Raise(t.Context(), 0, true)
	require.NoError(t, err)
	_, _, err = l.reconciler(t, outbox.ReconcileConfig{Grace: 30 * time.Second}).Rearm(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, l.count(t, "id = 1 AND state = 'scheduled' AND available_at = due_at"))
	require.Equal(t, 1, l.count(t, "id = 2 AND available_at > UTC_TIMESTAMP(6) + INTERVAL 50 SECOND"), "a retry keeps its pause")
}
