package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/config"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/outbox"
)

func newOutbox() *cobra.Command {
	c := &cobra.Command{
		Use:   "outbox",
		Short: "Look at messages and act on them: list, show, stats, requeue, cancel, reschedule, publish-now, purge",
		Long: `Look at messages and act on them, on the database of MYSQL_DSN. Nothing else needs to run. What is done is written to the audit
table in the same transaction.

With --json every command prints what the HTTP API answers below /v1/admin.

Exit codes: 0 done; 1 it went wrong, or with stats --check something is not well; 2 it could not begin: wrong arguments or settings;
3 there is no such message, it is not in a state for that, or it is protected, be it one of several
that are named by their ids; and of those that a filter picks: none was changed.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newOutboxList(), newOutboxShow(), newOutboxStats(),
		newOutboxAct(outbox.ActRequeue, "Give dead messages another life, with no attempts counted"),
		newOutboxAct(outbox.ActCancel, "Withdraw live messages: they take no effect any more"),
		newOutboxAct(outbox.ActReschedule, "Move live messages to another due time"),
		newOutboxAct(outbox.ActPublishNow, "Make live messages due at once"),
		newOutboxPurge())
	return c
}

// refused is the exit code of what is asked of a message that does not exist or does not allow it.
const refused = 3

// desk is what the commands for operators work on.
type desk struct {
	*outbox.Operator

	store *outbox.Store
	shop  *ordering.Service
	cfg   config.Config
	close func()
}

// openDesk opens the database. The caller closes it.
func openDesk(c *cobra.Command) (*desk, error) {
	cfg, err := load("MYSQL_DSN")
	if err != nil {
		return nil, err
	}
	db, closeDB, err := openDatabase(c, cfg, false)
	if err != nil {
		return nil, fail(wentWrong, err)
	}
	d := &desk{cfg: cfg, close: closeDB}
	pool, err := db.DB()
	if err == nil {
		err = askTables(c.Context(), pool)
	}
	if err == nil {
		d.store, err = outbox.NewStore(db, outbox.StoreConfig{Retention: cfg.Retention, MaxAttempts: cfg.MaxAttempts})
	}
	if err == nil {
		d.shop, err = newShop(db, d.store, cfg, nil)
	}
	if err != nil {
		closeDB()
		return nil, fail(wentWrong, err)
	}
	d.Operator = newOperator(d.store, d.shop, cfg)
	return d, nil
}

// withDesk makes a command of what works on a desk.
func withDesk(do func(c *cobra.Command, d *desk, args []string) error) func(c *cobra.Command, args []string) error {
	return func(c *cobra.Command, args []string) error {
		d, err := openDesk(c)
		if err != nil {
			return err
		}
		defer d.close()
		return deskError(do(c, d, args))
	}
}

// deskError gives err the exit code that it means.
func deskError(err error) error {
	if _, judged := errors.AsType[*failure](err); err == nil || judged {
		return err
	}
	_, protected := errors.AsType[*outbox.ProtectedError](err)
	switch {
	case errors.Is(err, outbox.ErrInvalidMessage):
		return fail(cannotBegin, err)
	case protected || errors.Is(err, outbox.ErrNoMessage) || errors.Is(err, outbox.ErrWrongState):
		return fail(refused, err)
	}
	return fail(wentWrong, err)
}

// filterFlags are the flags by which messages are picked.
type filterFlags struct {
	outbox.Filter
	state    string
	from, to string
}

func (f *filterFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.Topic, "topic", "", "only messages of this topic")
	flags.StringVar(&f.Key, "key", "", "only messages with this key")
	flags.StringVar(&f.KeyPrefix, "key-prefix", "", "only messages whose keys begin so")
	flags.StringVar(&f.state, "state", "", "only messages in this state: scheduled, published, done, canceled or dead")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{"scheduled", "published", "done", "canceled", "dead"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	flags.StringVar(&f.from, "due-from", "", "only messages that are due then or later: a time as RFC 3339 writes it, or a duration from now such as -1h")
	flags.StringVar(&f.to, "due-to", "", "only messages that are due before")
	flags.StringVar(&f.Error, "error", "", "only messages whose last error has this text in it")
}

// filter reads the flags. Durations count from the database's now.
func (f *filterFlags) filter(c *cobra.Command, d *desk) (outbox.Filter, error) {
	f.State = outbox.State(f.state)
	for _, t := range []struct {
		flag, value string
		into        *time.Time
	}{{"due-from", f.from, &f.DueFrom}, {"due-to", f.to, &f.DueBefore}} {
		if t.value == "" {
			continue
		}
		at, err := d.instant(c, t.flag, t.value)
		if err != nil {
			return f.Filter, err
		}
		if at.IsZero() {
			return f.Filter, fail(cannotBegin, fmt.Errorf("--%s: is in the year 1", t.flag))
		}
		*t.into = at
	}
	return f.Filter, nil
}

// whole refuses a flag that was given without a value: it would pick more than was meant.
func (f *filterFlags) whole(c *cobra.Command) (err error) {
	for _, name := range []string{"topic", "key", "key-prefix", "state", "due-from", "due-to", "error"} {
		if flag := c.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" && err == nil {
			err = fail(cannotBegin, fmt.Errorf("--%s: is empty; leave it out", name))
		}
	}
	return err
}

// instant reads a time, or a duration from the database's now.
func (d *desk) instant(c *cobra.Command, flag, value string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return at, nil
	}
	ahead, err := time.ParseDuration(value)
	if err != nil {
		return time.Time{}, fail(cannotBegin, fmt.Errorf("--%s: is %.40q, want a time such as 2026-11-30T18:00:00Z, or a duration from now such as 90s", flag, value))
	}
	now, err := d.store.Now(c.Context())
	return now.Add(ahead), err
}

func newOutboxList() *cobra.Command {
	var (
		f      filterFlags
		limit  int
		after  string
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "list",
		Short: "List messages, by state what must be touched first, without a filter the newest",
		Args:  cobra.NoArgs,
		RunE: withDesk(func(c *cobra.Command, d *desk, _ []string) error {
			picks, err := f.filter(c, d)
			if err != nil {
				return err
			}
			page, err := d.List(c.Context(), picks, after, limit)
			if err != nil {
				return err
			}
			// A page may be short, or empty, although the list goes on: what a call looks at is bounded.
			for page.Next != "" && len(page.Messages) < limit && err == nil {
				var more outbox.MessagePage
				more, err = d.List(c.Context(), picks, page.Next, limit-len(page.Messages))
				page.Messages, page.Next = append(page.Messages, more.Messages...), more.Next
			}
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), api.Body(page))
			}
			if page.Next != "" {
				_, _ = fmt.Fprintf(c.ErrOrStderr(), "there may be more: --after %s\n", page.Next)
			}
			now, err := d.store.Now(c.Context())
			if err != nil {
				return err
			}
			return printMessages(c.OutOrStdout(), page.Messages, now)
		}),
	}
	f.add(c)
	c.Flags().IntVar(&limit, "limit", 50, "how many messages at most, 1 to 500")
	c.Flags().StringVar(&after, "after", "", "go on where another list has ended")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return c
}

func newOutboxShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show a message, its payload and its story",
		Args:  cobra.ExactArgs(1),
		RunE: withDesk(func(c *cobra.Command, d *desk, args []string) error {
			id, err := messageID(args[0])
			if err != nil {
				return err
			}
			story, err := d.Story(c.Context(), id)
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(c.OutOrStdout(), api.Body(story))
			}
			return printStory(c.OutOrStdout(), story)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return c
}

func newOutboxStats() *cobra.Command {
	var asJSON, check bool
	c := &cobra.Command{
		Use:   "stats",
		Short: "Say whether all is well, and what there is",
		Args:  cobra.NoArgs,
		RunE: withDesk(func(c *cobra.Command, d *desk, _ []string) error {
			v, err := d.Overview(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(c.OutOrStdout(), api.Body(v))
			} else {
				err = printOverview(c.OutOrStdout(), v)
			}
			if err == nil && check && !v.Verdict.OK {
				err = errors.New(v.Verdict.Text)
			}
			return err
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	c.Flags().BoolVar(&check, "check", false, "exit with 1 if something is not well")
	return c
}

func newOutboxPurge() *cobra.Command {
	var asJSON, dryRun bool
	c := &cobra.Command{
		Use:   "purge",
		Short: "Delete what has been finished for longer than RETENTION, as workers do",
		Args:  cobra.NoArgs,
		RunE: withDesk(func(c *cobra.Command, d *desk, _ []string) error {
			progress, done := showProgress(c.ErrOrStderr())
			defer done()
			r, err := outbox.NewReconciler(d.store, outbox.ReconcileConfig{Progress: progress})
			if err != nil {
				return err
			}
			report, err := r.Purge(c.Context(), dryRun)
			done()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), report)
			}
			text := fmt.Sprintf("purged %d rows", report.Purged)
			switch {
			case report.Skipped:
				text = "another process is at it"
			case dryRun:
				text = fmt.Sprintf("%d rows would be purged", report.Purged)
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), text)
			return err
		}),
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "count what would be deleted, and delete nothing")
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as a JSON object")
	return c
}

func messageID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, fail(cannotBegin, fmt.Errorf("%.40q is no message's id", text))
	}
	return id, nil
}

// printJSON prints a value on a line of its own, as the API does.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
