package outbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox"
)

// executed is how many prepared statements the connection of a transaction has executed.
func executed(t *testing.T, tx *gorm.DB) (n int) {
	t.Helper()
	var name string
	require.NoError(t, tx.Statement.ConnPool.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Com_stmt_execute'").Scan(&name, &n))
	return n
}

// insertedRow is what Enqueue has written, with times relative to that of writing.
type insertedRow struct {
	Shard                          int
	Topic, MessageKey, LiveKey     []byte
	Untracked                      bool
	ContentType, Headers, Payload  []byte
	State                          string
	Generation, Revision           int
	DueUs, AvailableUs, CreatedMin int64
}

func (l ledger) insertedRow(t *testing.T, id int64) (r insertedRow) {
	t.Helper()
	require.NoError(t, l.db.Raw(`SELECT shard, topic, message_key, live_key, untracked, content_type, headers, payload, state, generation, revision,
			TIMESTAMPDIFF(MICROSECOND, created_at, due_at) AS due_us, TIMESTAMPDIFF(MICROSECOND, created_at, available_at) AS available_us,
			TIMESTAMPDIFF(MINUTE, created_at, UTC_TIMESTAMP(6)) AS created_min
		FROM outbox_messages WHERE id = ?`, id).Scan(&r).Error)
	return r
}

func TestPrepare_ChangesNothingThatIsWritten(t *testing.T) {
	t.Parallel()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	text, prepared := newUnprepared(t, devtest.Database(t)), newLedger(t, outbox.StoreConfig{})
	for name, m := range map[string]outbox.Message{
		"delay":               {Key: "1", Delay: 90 * time.Minute},
		"delay below zero":    {Key: "2", Delay: -time.Hour},
		"delay, rounded up":   {Key: "3", Delay: time.Nanosecond},
		"no delay":            {Key: "4"},
		"the longest delay":   {Key: "5", Delay: 290 * 365 * 24 * time.Hour},
		"every byte":          {Key: "6", Payload: every},
		"key of many letters": {Key: `ä茶'"\%`, Payload: []byte("x"), ContentType: "text/plain", Headers: map[string]string{"h": `"ä\`}},
		"no text to prepare":  {Key: "7", Payload: make([]byte, 100_000)},
		"untracked":           {Key: "8", Untracked: true},
	} {
		var rows []insertedRow
		for _, l := range []ledger{text, prepared} {
			m := m
			m.Topic = "test"
			l.tx(t, func(tx *gorm.DB) error {
				before := executed(t, tx)
				require.NoError(t, l.Enqueue(t.Context(), tx, &m), name)
				asText := l.Store == text.Store || len(m.Payload) > 50_000
				require.Equal(t, !asText, executed(t, tx) > before, name)
				return nil
			})
			rows = append(rows, l.insertedRow(t, m.ID))
			require.Equal(t, max(0, rows[0].DueUs), rows[0].AvailableUs, name)
		}
		require.Equal(t, rows[0], rows[1], name)
	}
	for _, l := range []ledger{text, prepared} {
		for _, due := range []time.Time{time.Date(2020, 1, 2, 3, 4, 5, 678_901_000, time.UTC), time.Date(9998, 1, 2, 3, 4, 5, 1, time.UTC)} {
			m := l.enqueue(t, outbox.Message{DueAt: due})
			r := l.record(t, m.ID)
			require.Equal(t, due.Add(999).Truncate(time.Microsecond), r.DueAt)
			row := l.insertedRow(t, m.ID)
			require.Equal(t, max(0, row.DueUs), row.AvailableUs)
			require.Nil(t, row.LiveKey)
		}
		l.tx(t, func(tx *gorm.DB) error {
			require.ErrorIs(t, l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test", Key: "1"}), outbox.ErrDuplicateKey)
			return l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test", Key: "after a refusal"})
		})
	}
}

// newUnprepared is a ledger on dsn whose Enqueue sends text.
func newUnprepared(t *testing.T, dsn string) ledger {
	t.Helper()
	db, err := database.Open(t.Context(), dsn)
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, database.Migrate(t.Context(), db, database.Set{Table: "goose_outbox", Files: outbox.Migrations}))
	store, err := outbox.NewStore(db, outbox.StoreConfig{})
	require.NoError(t, err)
	return ledger{store, db}
}

func TestPrepare_IsNotForTransactionsOfOtherPools(t *testing.T) {
	t.Parallel()
	dsn := devtest.Database(t)
	l, other := openLedger(t, dsn, outbox.StoreConfig{}), newUnprepared(t, dsn)
	m := outbox.Message{Topic: "test", Key: "1"}
	no := errors.New("no")
	require.ErrorIs(t, other.db.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, l.Enqueue(t.Context(), tx, &m))
		require.Zero(t, executed(t, tx))
		return no
	}), no)
	require.Zero(t, l.count(t, "TRUE"), "it went the way of its transaction")
	tx := other.db.Begin()
	require.NoError(t, tx.Commit().Error)
	require.Error(t, l.Enqueue(t.Context(), tx, &m), "it has ended")
	require.Zero(t, l.count(t, "TRUE"))
}

// Whoever holds the pool's only connection must not wait for another one.
func TestPrepare_TakesNoSecondConnection(t *testing.T) {
	t.Parallel()
	l := newUnprepared(t, devtest.Database(t))
	pool, err := l.db.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(1)
	for range 3 { // the second and third time it is there already, then on a connection that was not
		require.NoError(t, l.Prepare(t.Context()))
		l.tx(t, func(tx *gorm.DB) error {
			for range 3 {
				require.NoError(t, l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test"}))
			}
			require.Equal(t, 3, executed(t, tx))
			return nil
		})
		pool.SetMaxIdleConns(0)
	}
	require.Equal(t, 9, l.count(t, "TRUE"))
}

func TestPrepare_OutlivesAChangedTable(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.enqueue(t, outbox.Message{})
	for _, change := range []string{"ADD COLUMN more INT NOT NULL DEFAULT 7", "ADD KEY more (more)", "DROP COLUMN more"} {
		l.exec(t, "ALTER TABLE outbox_messages "+change)
		l.enqueue(t, outbox.Message{})
		l.enqueue(t, outbox.Message{DueAt: time.Now()})
	}
	require.Equal(t, 7, l.count(t, "TRUE"))
}

func TestPrepare_IsDoneWithoutWhereTheServerPreparesNothing(t *testing.T) {
	t.Parallel()
	server := devtest.MariaDB(t)
	early := openLedger(t, server.DSN("test"), outbox.StoreConfig{})
	pool, err := early.db.DB()
	require.NoError(t, err)
	early.exec(t, "SET GLOBAL max_prepared_stmt_count = 0")
	pool.SetMaxIdleConns(0) // what comes now is another connection
	late := newUnprepared(t, server.DSN("test"))
	require.ErrorContains(t, late.Prepare(t.Context()), "max_prepared_stmt_count")
	for i, l := range []ledger{early, late} {
		l.tx(t, func(tx *gorm.DB) error {
			require.NoError(t, l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test"}))
			require.Zero(t, executed(t, tx))
			return nil
		})
		require.Equal(t, i+1, l.count(t, "TRUE"))
	}
	late.exec(t, "SET GLOBAL max_prepared_stmt_count = 1000")
	require.NoError(t, late.Prepare(t.Context()))
	for _, l := range []ledger{early, late} {
		l.tx(t, func(tx *gorm.DB) error {
			require.NoError(t, l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "test"}))
			require.Equal(t, 1, executed(t, tx))
			return nil
		})
	}
}

func TestPrepare_RefusesASessionThatWouldChangeBytes(t *testing.T) {
	t.Parallel()
	l := newUnprepared(t, devtest.Database(t)+"&character_set_connection=latin1")
	require.ErrorContains(t, l.Prepare(t.Context()), "character_set_connection")
	payload := []byte("\xc3\xa4\xff")
	m := l.enqueue(t, outbox.Message{Payload: payload})
	require.Equal(t, payload, l.insertedRow(t, m.ID).Payload)
}
