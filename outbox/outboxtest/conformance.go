package outboxtest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

// Handlers take deliveries, from many goroutines at a time. One that gets no error is dealt with.
type Handlers struct {
	Handle   func(ctx context.Context, d outbox.Delivery) error      // of a consumed topic
	Batch    func(ctx context.Context, ds []outbox.Delivery) []error // of a consumed topic, many at once: a Side may use either
	Unrouted func(ctx context.Context, d outbox.Delivery) error      // of a topic that nobody consumes
}

// Side is a broker, and a way to delay messages through it, as Conformance drives it.
type Side struct {
	// Publisher hands messages over, and Reach goes with it as in outbox.RelayConfig.
	Publisher outbox.Publisher
	Reach     func() outbox.Reach
	// Depth is that of outbox.ReconcileConfig.
	Depth outbox.QueueDepth
	// Restart ends the broker without warning and brings it back. What it forgets by that is its own affair.
	Restart func()
	// Block keeps the broker from taking messages until Unblock is called.
	Block, Unblock func()
	// Switch goes over to another way to delay messages while messages are in flight.
	Switch func()
	// Late is how late the effect of a message may be on a machine that has little else to do, and Burst how late the last of ten
	// thousand that are due at once.
	Late, Burst time.Duration
}

// The topics that the suite uses.
const (
	Topic  = "conformance"
	Orphan = "conformance.orphan" // is consumed by nobody
)

// Open makes what the suite needs for one of its tests, on a ledger in an empty database of the test's own: a Side that
// consumes Topic and gives deliveries to h. Everything of it ends with t. It is called from several goroutines at a time.
type Open func(t *testing.T, store *outbox.Store, h Handlers) Side

// Conformance runs the suite that every way of delaying messages has to pass: whatever the broker does, no message is lost, has its
// effect twice, or has it before its time by the database's clock.
//
// The function database returns an empty database with the tables of outbox.Migrations, of the test's own.
func Conformance(t *testing.T, database func(t *testing.T) *gorm.DB, open Open) {
	t.Helper()
	type test struct {
		name string
		run  func(r *rig)
	}
	// What only waits for its time does so side by side.
	t.Run("beside each other", func(t *testing.T) {
		for _, test := range []test{
			{"mixed delays", mixedDelays},
			{"far and past", farAndPast},
			{"orphan", orphan},
			{"cancel and reschedule", withdrawn},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(newRig(t, database(t), open))
			})
		}
	})
	// These measure what the machine can do, or restart and block a broker that the tests may share.
	for _, test := range []test{
		{"ten thousand at once", manyAtOnce},
		{"restart", restart},
		{"blocked", blocked},
		{"switch", switched},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(newRig(t, database(t), open))
		})
	}
}

// Delays of all sizes, enqueued together, in no order: each comes at its own time.
func mixedDelays(r *rig) {
	var batch []outbox.Message
	for i := range 400 {
		batch = append(batch, outbox.Message{Key: fmt.Sprint(i), Delay: rand.N(6 * time.Second)}) //nolint:gosec // spreads them, guards nothing
	}
	r.enqueue(batch...)
	r.done(len(batch))
	r.punctual(r.side.Late)
	r.once(len(batch))
}

// What lies years ahead stays; what lies in the past, or a part of a millisecond ahead, comes at once.
func farAndPast(r *rig) {
	for _, days := range []int{24, 25, 49, 50, 365, 3650} {
		r.enqueue(outbox.Message{Key: fmt.Sprint(days), Delay: time.Duration(days) * 24 * time.Hour})
	}
	var soon []outbox.Message
	for _, delay := range []time.Duration{0, -time.Second, -1000 * time.Hour, time.Microsecond, 1500 * time.Microsecond, time.Second + 500*time.Microsecond} {
		soon = append(soon, outbox.Message{Delay: delay})
	}
	r.enqueue(soon...)
	r.done(len(soon))
	r.once(len(soon))
	r.Equal(6, r.count("SELECT COUNT(*) FROM outbox_messages WHERE state IN ('scheduled', 'published')"))
}

func manyAtOnce(r *rig) {
	const messages = 10_000
	due := time.Now().Add(8 * time.Second)
	for range messages / 1000 {
		r.enqueue(slices.Repeat([]outbox.Message{{DueAt: due}}, 1000)...)
	}
	r.done(messages)
	r.once(messages)
	r.LessOrEqual(r.lateness(1), r.side.Burst, "the last one")
}

// A message that nobody consumes disturbs no other, and is in front of an operator.
func orphan(r *rig) {
	r.enqueue(outbox.Message{Topic: Orphan, Key: "orphan", Delay: time.Second})
	r.enqueue(slices.Repeat([]outbox.Message{{Delay: 2 * time.Second}}, 50)...)
	r.done(50)
	r.punctual(r.side.Late)
	r.once(50)
	r.eventually("the orphan is seen", func() bool {
		m, err := r.store.Lookup(r.t.Context(), Orphan, "orphan")
		r.NoError(err)
		return m.Repairs > 0 && m.LastError != ""
	})
}

func withdrawn(r *rig) {
	for i := range 40 {
		r.enqueue(outbox.Message{Key: fmt.Sprint(i), Delay: 3 * time.Second})
	}
	r.eventually("handed over, or nearly", func() bool {
		return r.count("SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MIN(due_at)) FROM outbox_messages") < 1_500_000
	})
	start := time.Now()
	r.NoError(r.db.Transaction(func(tx *gorm.DB) error {
		for i := range 40 {
			var err error
			switch key := fmt.Sprint(i); i % 4 {
			case 0:
				err = r.store.Cancel(r.t.Context(), tx, Topic, key)
			case 1: // later
				err = r.store.Reschedule(r.t.Context(), tx, Topic, key, start.Add(5*time.Second))
			case 2: // earlier
				err = r.store.Reschedule(r.t.Context(), tx, Topic, key, start.Add(500*time.Millisecond))
			case 3: // anew
				m := outbox.Message{Topic: Topic, Key: key, Delay: 2 * time.Second, OnConflict: outbox.OnConflictReplace}
				err = r.store.Enqueue(r.t.Context(), tx, &m)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	r.done(30)
	r.once(30)
	r.punctual(r.side.Late)
	r.Equal(10, r.count("SELECT COUNT(*) FROM outbox_messages WHERE state = 'canceled'"))
	r.Zero(r.count("SELECT COUNT(*) FROM outboxtest_effects WHERE generation <> 2"), "only what is in force takes effect")
}

// The broker dies with messages waiting in it, in its queues, and before it.
func restart(r *rig) {
	var batch []outbox.Message
	for i := range 600 {
		batch = append(batch, outbox.Message{Delay: time.Duration(i) * 15 * time.Millisecond})
	}
	r.enqueue(batch...)
	r.done(50)
	r.side.Restart()
	r.done(len(batch))
	r.once(len(batch))
}

func blocked(r *rig) {
	r.enqueue(outbox.Message{})
	r.done(1)
	r.side.Block()
	r.enqueue(slices.Repeat([]outbox.Message{{}, {Delay: time.Second}, {Delay: 4 * time.Second}}, 100)...)
	r.eventually("two thirds are due", func() bool {
		return r.count("SELECT COUNT(*) FROM outbox_messages WHERE due_at <= UTC_TIMESTAMP(6)") > 200
	})
	r.side.Unblock()
	r.done(301)
	r.once(301)
	r.Zero(r.count("SELECT COUNT(*) FROM outbox_messages WHERE attempts > 0"), "it spends no attempts")
}

func switched(r *rig) {
	const messages = 5000
	var batch []outbox.Message
	for i := range messages {
		batch = append(batch, outbox.Message{Delay: 5*time.Second + time.Duration(i)*time.Millisecond})
	}
	for chunk := range slices.Chunk(batch, 1000) {
		r.enqueue(chunk...)
	}
	r.eventually("they come due", func() bool { return r.count("SELECT COUNT(*) FROM outboxtest_effects") > 100 })
	r.side.Switch()
	r.done(messages)
	r.once(messages)
}

// rig is a ledger with everything that moves its messages.
type rig struct {
	*require.Assertions
	t     *testing.T
	db    *gorm.DB
	store *outbox.Store
	side  Side
}

const patience = 3 * time.Minute

func newRig(t *testing.T, db *gorm.DB, open Open) *rig {
	t.Helper()
	store, err := outbox.NewStore(db, outbox.StoreConfig{})
	require.NoError(t, err)
	require.NoError(t, db.Exec(`CREATE TABLE outboxtest_effects (
		message_id BIGINT NOT NULL, generation BIGINT NOT NULL, effected_at DATETIME(6) NOT NULL)`).Error)
	r := &rig{Assertions: require.New(t), t: t, db: db, store: store}
	r.side = open(t, store, Handlers{Handle: r.handle, Batch: r.handleBatch, Unrouted: store.Unrouted})
	relay, err := outbox.NewRelay(store, r.side.Publisher, outbox.RelayConfig{Reach: r.side.Reach, Grace: grace, Poll: 50 * time.Millisecond})
	require.NoError(t, err)
	rec, err := outbox.NewReconciler(store, outbox.ReconcileConfig{Reach: r.side.Reach, Grace: grace, Depth: r.side.Depth})
	require.NoError(t, err)
	r.during(relay.Run)
	r.during(func(ctx context.Context) error { return reconcile(ctx, rec) })
	return r
}

// grace is longer than a message may wait where nothing is lost: what is scheduled again must have been lost.
const grace = 20 * time.Second

// reconcile does what a worker does at each connection and each minute, more often. What goes wrong while the broker is away is
// tried again.
func reconcile(ctx context.Context, rec *outbox.Reconciler) error {
	rearm, pass := time.NewTicker(time.Second), time.NewTicker(5*time.Second)
	defer rearm.Stop()
	defer pass.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-rearm.C:
			_, _, _ = rec.Rearm(ctx)
		case <-pass.C:
			_, _ = rec.Run(ctx, outbox.Scope{})
		}
	}
}

// during runs fn until the test ends.
func (r *rig) during(fn func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- fn(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		r.NoError(<-ended)
	})
}

func (r *rig) handle(ctx context.Context, d outbox.Delivery) error {
	_, err := r.store.SQL().Handle(ctx, d, func(tx *sql.Tx) error { return effect(ctx, tx, d) })
	return err
}

func (r *rig) handleBatch(ctx context.Context, ds []outbox.Delivery) []error {
	results := r.store.SQL().HandleBatch(ctx, ds, func(tx *sql.Tx, ds []outbox.Delivery) error {
		for _, d := range ds {
			if err := effect(ctx, tx, d); err != nil {
				return err
			}
		}
		return nil
	})
	errs := make([]error, len(results))
	for i, result := range results {
		errs[i] = result.Err
	}
	return errs
}

func effect(ctx context.Context, tx *sql.Tx, d outbox.Delivery) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO outboxtest_effects VALUES (?, ?, UTC_TIMESTAMP(6))", d.ID, d.Generation)
	return err
}

func (r *rig) enqueue(messages ...outbox.Message) {
	r.t.Helper()
	r.NoError(r.db.Transaction(func(tx *gorm.DB) error {
		for _, m := range messages {
			if m.Topic == "" {
				m.Topic = Topic
			}
			if err := r.store.Enqueue(r.t.Context(), tx, &m); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (r *rig) count(query string) (n int) {
	r.t.Helper()
	r.NoError(r.db.WithContext(r.t.Context()).Raw(query).Scan(&n).Error)
	return n
}

func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	for start := time.Now(); !holds(); {
		if time.Since(start) > patience {
			r.FailNow("not in time: "+what, r.states())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.t.Context().Done():
			r.FailNow("the test has ended before: " + what)
		}
	}
}

// states tells how far the messages have come.
func (r *rig) states() string {
	var rows []struct {
		State, LastError           string
		Messages, Publishes, Epoch int
		Shortest, Longest          int64
	}
	r.NoError(r.db.Raw(`SELECT state, COALESCE(last_error, '') AS last_error, COUNT(*) AS messages, SUM(publishes) AS publishes, MAX(broker_epoch) AS epoch,
			MIN(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), available_at)) AS shortest, MAX(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), available_at)) AS longest
		FROM outbox_messages GROUP BY state, last_error`).Scan(&rows).Error)
	var text strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&text, "%d %s (%d publishes, epoch %d, available in %d to %d s) %s\n", row.Messages, row.State, row.Publishes, row.Epoch, row.Shortest, row.Longest, row.LastError)
	}
	return text.String()
}

// done waits until so many messages are done.
func (r *rig) done(want int) {
	r.t.Helper()
	r.eventually(fmt.Sprint(want, " messages are done"), func() bool {
		return r.count("SELECT COUNT(*) FROM outbox_messages WHERE state = 'done'") >= want
	})
}

// once makes sure that so many effects were committed, one for each message, none before its time.
func (r *rig) once(want int) {
	r.t.Helper()
	r.Equal(want, r.count("SELECT COUNT(*) FROM outboxtest_effects"))
	r.Equal(want, r.count("SELECT COUNT(DISTINCT message_id) FROM outboxtest_effects"))
	r.Equal(want, r.count("SELECT COUNT(*) FROM outbox_messages WHERE state = 'done'"))
	r.Zero(r.count(`SELECT COUNT(*) FROM outboxtest_effects AS e JOIN outbox_messages AS m ON m.id = e.message_id
		WHERE e.effected_at < m.due_at`), "early")
}

// punctual bounds the lateness of all but one in a hundred, which may have met a pause of the machine.
func (r *rig) punctual(late time.Duration) {
	r.t.Helper()
	r.LessOrEqual(r.lateness(.99), late, "lateness")
}

// lateness is that share's, of all effects.
func (r *rig) lateness(share float64) time.Duration {
	r.t.Helper()
	var all []int64
	r.NoError(r.db.WithContext(r.t.Context()).Raw(`SELECT TIMESTAMPDIFF(MICROSECOND, m.due_at, e.effected_at)
		FROM outboxtest_effects AS e JOIN outbox_messages AS m ON m.id = e.message_id ORDER BY 1`).Scan(&all).Error)
	r.NotEmpty(all)
	r.t.Logf("lateness: p50 %v, p99 %v, max %v", at(all, .5), at(all, .99), at(all, 1))
	return at(all, share)
}

func at(sorted []int64, share float64) time.Duration {
	return time.Duration(sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]) * time.Microsecond
}
