package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// counter is a database with tables, and the commands for operators on it.
type counter struct {
	t     *testing.T
	db    *gorm.DB
	store *outbox.Store
	env   []string
}

func newCounter(t *testing.T) *counter {
	t.Helper()
	dsn := devtest.Database(t)
	db, err := database.Open(t.Context(), dsn)
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, database.Migrate(t.Context(), db, sets()...))
	store, err := outbox.NewStore(db, outbox.StoreConfig{})
	require.NoError(t, err)
	return &counter{t, db, store, []string{"MYSQL_DSN=" + dsn, "USER=ann"}}
}

func (c *counter) enqueue(n int, m outbox.Message) (ids []string) {
	c.t.Helper()
	require.NoError(c.t, c.db.Transaction(func(tx *gorm.DB) error {
		for range n {
			one := m
			if err := c.store.Enqueue(c.t.Context(), tx, &one); err != nil {
				return err
			}
			ids = append(ids, fmt.Sprint(one.ID))
		}
		return nil
	}))
	return ids
}

func (c *counter) number(query string) (n int) {
	c.t.Helper()
	require.NoError(c.t, c.db.Raw(query).Scan(&n).Error)
	return n
}

// run runs a command that must end with code, and returns what it prints.
func (c *counter) run(code int, args ...string) (stdout, stderr string) {
	c.t.Helper()
	got, stdout, stderr := execute(c.t, c.env, append([]string{"outbox"}, args...)...)
	require.Equal(c.t, code, got, "%v: %s%s", args, stdout, stderr)
	return stdout, stderr
}

// json runs a command with --json, which must succeed, and reads its one line.
func (c *counter) json(args ...string) (v map[string]any) {
	c.t.Helper()
	stdout, _ := c.run(0, append(args, "--json")...)
	require.NoError(c.t, json.Unmarshal([]byte(stdout), &v), stdout)
	return v
}

func TestOutbox_ListsAndShows(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	ids := c.enqueue(3, outbox.Message{Topic: "mail", Delay: time.Hour, Payload: []byte("dear\x1b[31m ann")})
	c.enqueue(1, outbox.Message{Topic: "push", Key: "größe", Delay: 3 * time.Hour})
	table, _ := c.run(0, "list", "--topic=mail", "--due-from=30m", "--due-to=2h", "--state=scheduled")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	require.Len(t, lines, 4)
	require.Regexp(t, `^ID +TOPIC +KEY +STATE +DUE `, lines[0])
	for i, id := range ids {
		require.Regexp(t, `^`+id+` +mail +scheduled `, lines[i+1])
	}
	require.Contains(t, c.json("list", "--key=größe")["messages"].([]any)[0], "lateness_ms") //nolint:forcetypeassert // the test fails then, too
	first := c.json("list", "--limit=2")
	require.Len(t, c.json("list", "--limit=3", "--after="+fmt.Sprint(first["next"]))["messages"], 2)
	_, more := c.run(0, "list", "--limit=2")
	require.Contains(t, more, "--after "+fmt.Sprint(first["next"]))

	text, _ := c.run(0, "show", ids[0])
	require.Contains(t, text, "enqueued")
	require.Contains(t, text, "dear [31m ann")
	require.NotContains(t, text, "\x1b", "a payload cannot speak to the terminal")
	require.Contains(t, c.json("show", ids[0]), "story")

	_, stderr := c.run(3, "show", "4711")
	require.Contains(t, stderr, "no such message")
	for _, args := range [][]string{
		{"show", "x"}, {"show"}, {"list", "--state=gone"}, {"list", "--due-from=monday"}, {"list", "--limit=0"}, {"list", "--after=x"}, {"lists"}, {"purge", "1"},
	} {
		c.run(2, args...)
	}
}

func TestOutbox_SaysWhetherAllIsWell(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	text, _ := c.run(0, "stats")
	require.Contains(t, text, "nothing is late, but no worker runs")
	_, stderr := c.run(1, "stats", "--check")
	require.Contains(t, stderr, "no worker runs")
	require.Contains(t, c.json("stats"), "verdict")
	require.NoError(t, c.db.Exec("INSERT INTO outbox_relays (owner, seen_at) VALUES ('one', UTC_TIMESTAMP(6))").Error)
	text, _ = c.run(0, "stats", "--check")
	require.Contains(t, text, "all on time")
}

func TestOutbox_ActsOnOneAndOnMany(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	ids := c.enqueue(5, outbox.Message{Topic: "mail", Delay: time.Hour})
	text, _ := c.run(0, "publish-now", ids[0], ids[1])
	require.Equal(t, 2, strings.Count(text, " is scheduled, due "))
	require.Equal(t, "canceled", c.json("cancel", ids[2], "--as=Zoë")["state"])
	text, stderr := c.run(3, "requeue", ids[2], "4711", ids[3])
	require.Empty(t, text)
	require.Contains(t, stderr, "message "+ids[2]+": outbox: the message is not in a state for that: it is canceled")
	require.Contains(t, stderr, "message 4711: outbox: no such message")
	require.Equal(t, "2030-01-01T00:00:00.000000Z", c.json("reschedule", ids[3], "--due=2030-01-01T00:00:00Z")["due_at"])
	require.Equal(t, 2, c.number("SELECT COUNT(*) FROM outbox_audit WHERE actor = 'ann' AND via = 'cli' AND action = 'publish-now'"))
	require.Equal(t, 1, c.number("SELECT COUNT(*) FROM outbox_audit WHERE actor = 'Zoë' AND action = 'cancel'"))

	c.enqueue(450, outbox.Message{Topic: "many", Delay: time.Hour})
	require.InDelta(t, 450, c.json("cancel", "--topic=many", "--dry-run")["matched"], 0)
	_, stderr = c.run(2, "cancel", "--topic=many")
	require.Contains(t, stderr, "--yes is needed")
	require.Equal(t, 450, c.number("SELECT COUNT(*) FROM outbox_messages WHERE topic = 'many' AND generation = 1 AND state = 'scheduled'"))
	text, _ = c.run(0, "reschedule", "--topic=many", "--in=2h", "--limit=300", "--yes")
	require.Equal(t, "matched 300, changed 300; there may be more: raise --limit\n", text)
	require.Equal(t, 300, c.number("SELECT COUNT(*) FROM outbox_messages WHERE topic = 'many' AND generation = 2"))
	require.InDelta(t, 450, c.json("cancel", "--topic=many", "--yes")["changed"], 0)
	_, stderr = c.run(3, "cancel", "--topic=many", "--yes")
	require.Contains(t, stderr, "no message was changed")
	for _, args := range [][]string{
		{"cancel"},
		{"cancel", "--yes"},
		{"cancel", "1", "--topic=many"},
		{"cancel", "1", "--dry-run"},
		{"reschedule", "1"},
		{"reschedule", "1", "--due=x"},
		{"reschedule", "1", "--due="},
		{"reschedule", "1", "--due=0001-01-01T00:00:00Z"},
		{"cancel", "--topic=many", "--key=", "--yes"},
		{"cancel", "--topic=many", "--due-to=", "--yes"},
		{"cancel", "--topic=many", "--due-to=0001-01-01T00:00:00Z", "--yes"},
		{"reschedule", "1", "--in=1h", "--due=2030-01-01T00:00:00Z"},
		{"cancel", "one"},
		{"cancel", "1", "--as=a\nb"},
		{"cancel", "--topic=many", "--limit=0"},
		{"requeue", "--topic=many", "--state=done", "--yes"},
	} {
		c.run(2, args...)
	}
}

func TestOutbox_LeavesThePromisesOfOrdersAlone(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	shop, err := ordering.New(c.db, c.store, ordering.Config{})
	require.NoError(t, err)
	_, err = shop.SetStock(t.Context(), model.Stocking{SKU: "cup", Name: "Cup", Stock: 1})
	require.NoError(t, err)
	o, err := shop.Place(t.Context(), model.Draft{Kind: model.Normal, User: "ann", Items: []model.Item{{SKU: "cup", Quantity: 1, Price: 1}}}, "")
	require.NoError(t, err)
	_, stderr := c.run(3, "cancel", fmt.Sprint(o.MessageID))
	require.Contains(t, stderr, "order "+o.No+" is pending and this message closes it; cancel the order instead")
	stdout, stderr := c.run(3, "cancel", "--topic=order.expire", "--yes")
	require.Contains(t, stdout, "matched 1, changed 0, protected 1 (order "+o.No)
	require.Contains(t, stderr, "no message was changed")
}

func TestOutbox_Purges(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	ids := c.enqueue(3, outbox.Message{Topic: "mail", Delay: time.Hour})
	c.run(0, append([]string{"cancel"}, ids...)...)
	require.NoError(t, c.db.Exec("UPDATE outbox_messages SET available_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND").Error)
	text, _ := c.run(0, "purge", "--dry-run")
	require.Equal(t, "3 rows would be purged\n", text)
	require.InDelta(t, 3, c.json("purge")["purged"], 0)
	require.Zero(t, c.number("SELECT COUNT(*) FROM outbox_messages"))
	require.Equal(t, 3, c.number("SELECT COUNT(*) FROM outbox_audit"), "what was done is known for longer")
}

// Who is asked on a terminal has to say yes.
func TestConfirm_TakesYesOnly(t *testing.T) {
	t.Parallel()
	for answer, yes := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "n\n": false, "": false, "yeah\n": false} {
		c := newOutbox()
		var asked bytes.Buffer
		c.SetIn(strings.NewReader(answer))
		c.SetErr(&asked)
		err := confirm(c, "cancel 3 messages? [y/N] ")
		require.Equal(t, yes, err == nil, answer)
		require.Equal(t, "cancel 3 messages? [y/N] ", asked.String())
	}
}
