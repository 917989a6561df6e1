package outbox_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
)

func TestEnqueue_ExistsIfAndOnlyIfTheTransactionCommitted(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	rolledBack := errors.New("business says no")
	err := l.db.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "a", Key: "1"}))
		return rolledBack
	})
	require.ErrorIs(t, err, rolledBack)
	require.Zero(t, l.count(t, "TRUE"))

	m := l.enqueue(t, outbox.Message{Topic: "a", Key: "1", Payload: []byte("p"), Headers: map[string]string{"h": "v"}})
	r, err := l.Lookup(t.Context(), "a", "1")
	require.NoError(t, err)
	require.Equal(t, m.ID, r.ID)
	require.Equal(t, outbox.Scheduled, r.State)
	require.EqualValues(t, 1, r.Generation)
}

func TestEnqueue_TakesTransactionsOfDatabaseSQL(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	pool, err := l.db.DB()
	require.NoError(t, err)
	tx, err := pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	m := outbox.Message{Topic: "a", Key: "1", Delay: time.Hour}
	require.NoError(t, l.SQL().Enqueue(t.Context(), tx, &m))
	require.NoError(t, l.SQL().Reschedule(t.Context(), tx, "a", "1", time.Now().Add(2*time.Hour)))
	require.NoError(t, l.SQL().Cancel(t.Context(), tx, "a", "1"))
	require.NoError(t, tx.Commit())
	require.Equal(t, outbox.Canceled, l.record(t, m.ID).State)
}

func TestEnqueue_RefusesAHandleThatIsNoTransaction(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := &outbox.Message{Topic: "a", Key: "1"}
	prepared := l.db.Session(&gorm.Session{PrepareStmt: true})
	for name, tx := range map[string]*gorm.DB{"pool": l.db, "nil": nil, "zero": {}, "prepared pool": prepared} {
		require.ErrorIs(t, l.Enqueue(t.Context(), tx, m), outbox.ErrNotTransaction, name)
		require.ErrorIs(t, l.Cancel(t.Context(), tx, "a", "1"), outbox.ErrNotTransaction, name)
		require.ErrorIs(t, l.Reschedule(t.Context(), tx, "a", "1", time.Now()), outbox.ErrNotTransaction, name)
	}
	require.ErrorIs(t, l.SQL().Enqueue(t.Context(), nil, m), outbox.ErrNotTransaction)
	require.ErrorIs(t, l.SQL().Cancel(t.Context(), nil, "a", "1"), outbox.ErrNotTransaction)
	require.ErrorIs(t, l.SQL().Reschedule(t.Context(), nil, "a", "1", time.Now()), outbox.ErrNotTransaction)
	require.Zero(t, l.count(t, "TRUE"))

	tx := prepared.Begin()
	require.NoError(t, l.Enqueue(t.Context(), tx, m), "a transaction with prepared statements is one")
	require.NoError(t, tx.Rollback().Error)
	require.Error(t, l.Enqueue(t.Context(), tx, m), "it has ended")
}

func TestEnqueue_RefusesWhatWouldHarmTheBrokerOrTheLedger(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{MaxPayload: 100})
	due := time.Now()
	event := func(name, value string) map[string]string {
		headers := map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
		headers[name] = value
		return headers
	}
	for name, m := range map[string]outbox.Message{
		"topic":            {},
		"topic \"a b\"":    {Topic: "a b"},
		"1 to 64":          {Topic: longText(65)},
		"key \"a\\n\"":     {Topic: "a", Key: "a\n"},
		"key \"\\xff\"":    {Topic: "a", Key: "\xff"},
		"191 bytes":        {Topic: "a", Key: longText(192)},
		"payload has 101":  {Topic: "a", Payload: make([]byte, 101)},
		"content type":     {Topic: "a", ContentType: "text/plain\r\nx"},
		"127 bytes":        {Topic: "a", ContentType: longText(128)},
		"CC":               {Topic: "a", Headers: map[string]string{"CC": "other"}},
		"bcc":              {Topic: "a", Headers: map[string]string{"bcc": "other"}},
		"x-delay":          {Topic: "a", Headers: map[string]string{"x-delay": "1"}},
		"header name \"\"": {Topic: "a", Headers: map[string]string{"": "1"}},
		"header \"h\"":     {Topic: "a", Headers: map[string]string{"h": "\x00"}},
		"16384":            {Topic: "a", Headers: map[string]string{"h": longText(20_000)}},
		"year 1969":        {Topic: "a", DueAt: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)},
		"year 9999":        {Topic: "a", DueAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		"both set":         {Topic: "a", DueAt: due, Delay: time.Second},
		"\"overwrite\"":    {Topic: "a", OnConflict: "overwrite"},

		"\"Traceparent\" must be":  {Topic: "a", Headers: map[string]string{"Traceparent": trace}},
		"that of W3C":              {Topic: "a", Headers: map[string]string{"traceparent": trace + "0"}},
		"ff-0af7651916cd43":        {Topic: "a", Headers: map[string]string{"traceparent": "ff" + trace[2:]}},
		"00-0AF7651916CD43":        {Topic: "a", Headers: map[string]string{"traceparent": strings.ToUpper(trace)}},
		"00-000000000000000000000": {Topic: "a", Headers: map[string]string{"traceparent": "00-" + strings.Repeat("0", 32) + trace[35:]}},
		"-0000000000000000-01":     {Topic: "a", Headers: map[string]string{"traceparent": trace[:36] + strings.Repeat("0", 16) + trace[52:]}},
		"tracestate":               {Topic: "a", Headers: map[string]string{"tracestate": longText(513)}},

		"\"Ce-Id\" must be":                     {Topic: "a", Headers: map[string]string{"Ce-Id": "1"}},
		"ce-id, ce-source, ce-type beside ce-s": {Topic: "a", Headers: map[string]string{"ce-specversion": "1.0"}},
		"ce-specversion beside ce-id":           {Topic: "a", Headers: map[string]string{"ce-id": "1", "ce-source": "s", "ce-type": "t"}},
		"\"0.3\", not 1.0":                      {Topic: "a", Headers: event("ce-specversion", "0.3")},
		"ce-source is empty":                    {Topic: "a", Headers: event("ce-source", "")},
		"\"ce-\"":                               {Topic: "a", Headers: event("ce-", "x")},
		"\"ce-my_ext\"":                         {Topic: "a", Headers: event("ce-my_ext", "x")},
		"ce-" + longText(21):                    {Topic: "a", Headers: event("ce-"+longText(21), "x")},
		"ce-datacontenttype is no attribute":    {Topic: "a", Headers: event("ce-datacontenttype", "text/plain")},
		"ce-data is no attribute":               {Topic: "a", Headers: event("ce-data", "x")},
		"ce-time \"today\"":                     {Topic: "a", Headers: event("ce-time", "today")},
	} {
		err := l.db.Transaction(func(tx *gorm.DB) error {
			err := l.Enqueue(t.Context(), tx, &m)
			require.ErrorIs(t, err, outbox.ErrInvalidMessage, name)
			require.ErrorContains(t, err, name)
			require.Equal(t, name == "payload has 101", errors.Is(err, outbox.ErrPayloadTooLarge))
			return nil
		})
		require.NoError(t, err, "the transaction stays usable")
	}
	l.tx(t, func(tx *gorm.DB) error {
		require.ErrorIs(t, l.Enqueue(t.Context(), tx, nil), outbox.ErrInvalidMessage)
		return nil
	})
	require.Zero(t, l.count(t, "TRUE"))
}

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestEnqueue_TakesTracesAndEvents(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for _, headers := range []map[string]string{
		{"traceparent": trace, "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"},
		{"traceparent": "01" + trace[2:]},
		{"traceparent": "cc" + trace[2:] + "-what-comes"},
		{"ce-specversion": "1.0", "ce-id": "ä 1", "ce-source": "/s", "ce-type": "t", "ce-time": "2026-11-30T12:00:00.5+01:00", "ce-subject": "x", "ce-ext1": "y"},
	} {
		l.enqueue(t, outbox.Message{Topic: "a", Headers: headers})
	}
	require.Equal(t, 4, l.count(t, "TRUE"))
}

func TestEnqueue_AKeyIsUniqueAmongTheLive(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	for _, key := range []string{"abc", "ABC", "abc ", "äbc", "", ""} {
		l.enqueue(t, outbox.Message{Topic: "a", Key: key})
	}
	l.enqueue(t, outbox.Message{Topic: "A", Key: "abc"})
	l.tx(t, func(tx *gorm.DB) error {
		require.ErrorIs(t, l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "a", Key: "abc"}), outbox.ErrDuplicateKey)
		return l.Enqueue(t.Context(), tx, &outbox.Message{Topic: "a", Key: "other"})
	})
	require.Equal(t, 8, l.count(t, "TRUE"), "the transaction that met the duplicate stayed usable")

	l.tx(t, func(tx *gorm.DB) error { return l.Cancel(t.Context(), tx, "a", "abc") })
	l.enqueue(t, outbox.Message{Topic: "a", Key: "abc"})
	require.Equal(t, 1, l.count(t, "live_key = 'abc' AND topic = 'a'"))
}

func TestCancel_SaysWhoWon(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{Topic: "a", Key: "1"})
	l.tx(t, func(tx *gorm.DB) error {
		require.ErrorIs(t, l.Cancel(t.Context(), tx, "a", "2"), outbox.ErrNoMessage)
		require.ErrorIs(t, l.Cancel(t.Context(), tx, "a b", "2"), outbox.ErrInvalidMessage)
		require.ErrorIs(t, l.Cancel(t.Context(), tx, "a", ""), outbox.ErrInvalidMessage)
		require.NoError(t, l.Cancel(t.Context(), tx, "a", "1"))
		require.ErrorIs(t, l.Cancel(t.Context(), tx, "a", "1"), outbox.ErrNoMessage)
		return nil
	})
	require.Equal(t, outbox.Canceled, l.record(t, m.ID).State)
	_, err := l.Lookup(t.Context(), "a", "1")
	require.ErrorIs(t, err, outbox.ErrNoMessage)
}

func TestCancel_SeesRowsNewerThanItsSnapshot(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	l.enqueue(t, outbox.Message{Topic: "a", Key: "old"})
	pool, err := l.db.DB()
	require.NoError(t, err)
	tx, err := pool.BeginTx(t.Context(), &sqlRepeatable)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT COUNT(*) FROM outbox_messages")
	require.NoError(t, err)
	m := l.enqueue(t, outbox.Message{Topic: "a", Key: "1"})
	require.NoError(t, l.SQL().Cancel(t.Context(), tx, "a", "1"))
	require.NoError(t, tx.Commit())
	require.Equal(t, outbox.Canceled, l.record(t, m.ID).State)
}

func TestReschedule_MovesTheDueTimeAndBeginsANewGeneration(t *testing.T) {
	t.Parallel()
	l := newLedger(t, outbox.StoreConfig{})
	m := l.enqueue(t, outbox.Message{Topic: "a", Key: "1", Delay: time.Hour})
	due := time.Date(2031, 5, 6, 7, 8, 9, 123_456_001, time.UTC)
	l.tx(t, func(tx *gorm.DB) error {
		require.ErrorIs(t, l.Reschedule(t.Context(), tx, "a", "1", time.Time{}), outbox.ErrInvalidMessage)
		require.ErrorIs(t, l.Reschedule(t.Context(), tx, "a", "2", due), outbox.ErrNoMessage)
		return l.Reschedule(t.Context(), tx, "a", "1", due)
	})
	r := l.record(t, m.ID)
	require.EqualValues(t, 2, r.Generation)
	require.Equal(t, due.Add(999), r.DueAt, "rounded up to the microsecond")

	l.exec(t, "UPDATE outbox_messages SET state = 'dead', attempts = 9, last_error = 'no', available_at = NULL")
	l.tx(t, func(tx *gorm.DB) error { return l.Reschedule(t.Context(), tx, "a", "1", due) })
	r = l.record(t, m.ID)
	require.Equal(t, outbox.Scheduled, r.State, "a dead message lives again")
	require.Zero(t, r.Attempts)
	require.Empty(t, r.LastError, "it was of those attempts")
	require.EqualValues(t, 3, r.Generation)
}

var sqlRepeatable = sql.TxOptions{Isolation: sql.LevelRepeatableRead}
