package outbox_test

import (
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

func TestAfterCommit_IsRunOnceAndOnlyWhenTheEffectIsCommitted(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.effects(t)
	m := l.enqueue(t, outbox.Message{Key: "1"})
	d := l.delivery(t, m.ID)
	var committed []int
	runs := 0
	effect := func(err ...error) func(tx *gorm.DB) error {
		return func(tx *gorm.DB) error {
			runs++
			tx = tx.WithContext(t.Context())
			run := runs
			outbox.AfterCommit(tx, func() {
				require.Equal(t, 1, l.scalar(t, "SELECT COUNT(*) FROM effects"), "it is committed")
				committed = append(committed, run)
			})
			require.NoError(t, tx.Exec("INSERT INTO effects VALUES (?, UTC_TIMESTAMP(6))", m.ID).Error)
			if run <= len(err) {
				return err[run-1]
			}
			return nil
		}
	}
	outcome, err := l.Handle(t.Context(), d, effect(errEffect))
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeRetry, outcome)
	require.Empty(t, committed)

	d.Attempt++
	runs = 0
	outcome, err = l.Handle(t.Context(), d, effect(&mysql.MySQLError{Number: 1213}))
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDone, outcome)
	require.Equal(t, []int{2}, committed, "the run that lost a deadlock has no calls")

	outcome, err = l.Handle(t.Context(), d, effect())
	require.NoError(t, err)
	require.Equal(t, outbox.OutcomeDuplicate, outcome)
	require.Len(t, committed, 1)

	require.NoError(t, l.db.Transaction(func(tx *gorm.DB) error {
		outbox.AfterCommit(tx, func() { t.Error("nobody hears of this commit") })
		return nil
	}))
}

// The transactions of a lot that is divided each have the calls of their own.
func TestAfterCommit_OfManyIsRunForWhatIsCommitted(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	ds := l.fresh(t, 8)
	bad := ds[5].ID
	var committed []int64
	results := l.HandleBatch(t.Context(), ds, func(tx *gorm.DB, ds []outbox.Delivery) error {
		for _, d := range ds {
			outbox.AfterCommit(tx, func() { committed = append(committed, d.ID) })
		}
		if slices.ContainsFunc(ds, func(d outbox.Delivery) bool { return d.ID == bad }) {
			return errEffect
		}
		return nil
	})
	var done []int64
	for i, r := range results {
		if r.Outcome == outbox.OutcomeDone {
			done = append(done, ds[i].ID)
		}
	}
	require.Len(t, done, 6, "all but the bad one and the neighbour that it was left alone with")
	require.ElementsMatch(t, done, committed)
}
