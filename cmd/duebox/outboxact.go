package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/duebox/duebox/api"
	"github.com/duebox/duebox/outbox"
)

// acting is what a command that acts on messages was asked for.
type acting struct {
	outbox.Command

	picks               filterFlags
	as, due             string
	in                  time.Duration
	limit               int
	dryRun, yes, asJSON bool
}

func newOutboxAct(action outbox.Action, short string) *cobra.Command {
	a := &acting{Command: outbox.Command{Action: action}}
	c := &cobra.Command{
		Use:   string(action) + " [ID...]",
		Short: short,
		Long: short + `.

Messages are named by their ids, or picked by flags. Of those that are picked by flags, messages in a state for it are changed, unless they
have moved on meanwhile or somebody has them locked; before that their number is shown and confirmed.`,
		RunE: withDesk(func(c *cobra.Command, d *desk, args []string) error { return a.run(c, d, args) }),
	}
	a.picks.add(c)
	f := c.Flags()
	f.StringVar(&a.as, "as", "", "who does it, for the audit table (default $USER, or the user's name)")
	f.IntVar(&a.limit, "limit", 1000, "with a filter, how many messages at most")
	f.BoolVar(&a.dryRun, "dry-run", false, "with a filter, tell how many messages it picks, and change nothing")
	f.BoolVar(&a.yes, "yes", false, "with a filter, do not ask for confirmation")
	f.BoolVar(&a.asJSON, "json", false, "print a JSON object for each message, or for all that a filter picks")
	if action == outbox.ActReschedule {
		f.StringVar(&a.due, "due", "", "when they shall be due: a time as RFC 3339 writes it")
		f.DurationVar(&a.in, "in", 0, "or after how long from now")
		c.MarkFlagsMutuallyExclusive("due", "in")
		c.MarkFlagsOneRequired("due", "in")
	}
	return c
}

func (a *acting) run(c *cobra.Command, d *desk, args []string) error {
	by := outbox.Actor{Name: cmp.Or(a.as, os.Getenv("USER"), userName(), "unknown"), Via: "cli"}
	if a.Delay = a.in; c.Flags().Changed("due") {
		at, err := time.Parse(time.RFC3339, a.due)
		if err != nil || at.IsZero() {
			return fail(cannotBegin, fmt.Errorf("--due: is %.40q, want a time such as 2026-11-30T18:00:00Z", a.due))
		}
		a.DueAt = at
	}
	picks, err := a.picks.filter(c, d)
	if err != nil {
		return err
	}
	if err := a.picks.whole(c); err != nil {
		return err
	}
	switch {
	case len(args) == 0 && picks.IsZero():
		return fail(cannotBegin, errors.New("give ids, or pick messages by flags such as --topic or --state"))
	case len(args) == 0:
		return a.many(c, d, by, picks)
	case !picks.IsZero() || a.dryRun:
		return fail(cannotBegin, errors.New("give ids, or a filter, and not both"))
	}
	return a.each(c, d, by, args)
}

// userName is the name of who runs this, as the system knows it.
func userName() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// each acts on messages one by one. One that refuses does not keep the others from it.
func (a *acting) each(c *cobra.Command, d *desk, by outbox.Actor, args []string) error {
	ids := make([]int64, len(args))
	for i, arg := range args {
		var err error
		if ids[i], err = messageID(arg); err != nil {
			return err
		}
	}
	var all error
	code := refused
	for _, id := range ids {
		r, err := d.Act(c.Context(), by, id, a.Command)
		switch {
		case err != nil:
			all = errors.Join(all, fmt.Errorf("message %d: %w", id, err))
			if f, ok := errors.AsType[*failure](deskError(err)); ok {
				code = min(code, f.code)
			}
			if c.Context().Err() != nil {
				return fail(code, all)
			}
			continue
		case a.asJSON:
			err = printJSON(c.OutOrStdout(), api.Body(r))
		default:
			_, err = fmt.Fprintf(c.OutOrStdout(), "message %d is %s, due %s\n", id, r.State, shownTime(r.DueAt))
		}
		if err != nil {
			return err
		}
	}
	return fail(code, all)
}

// many acts on what the flags pick.
func (a *acting) many(c *cobra.Command, d *desk, by outbox.Actor, picks outbox.Filter) error {
	if a.limit < 1 {
		return fail(cannotBegin, fmt.Errorf("--limit: is %d, want 1 or more", a.limit))
	}
	b := outbox.Bulk{Command: a.Command, Filter: picks, DryRun: true}
	matched, err := bulk(c, d, by, b, a.limit)
	if err != nil || a.dryRun {
		return a.tell(c, matched, err)
	}
	allowed := matched.Matched - matched.Protected
	if allowed == 0 {
		return a.tell(c, matched, fail(refused, errors.New("no message was changed")))
	}
	if !a.yes {
		more := ""
		if matched.Next != "" {
			more = ", of more"
		}
		if err := confirm(c, fmt.Sprintf("%s %d messages%s? [y/N] ", a.Action, allowed, more)); err != nil {
			return err
		}
	}
	// As many as were counted, of those that were there.
	b.DryRun, b.Began = false, matched.Began
	done, err := bulk(c, d, by, b, allowed)
	done.Matched, done.Protected, done.Why, done.Next = matched.Matched, matched.Protected, matched.Why, ""
	switch rest := allowed - done.Changed; {
	case err != nil:
	case done.Changed == 0:
		err = fail(refused, errors.New("no message was changed"))
	case rest > 0:
		err = fail(wentWrong, fmt.Errorf("%d others were locked, or had moved on: look at them again", rest))
	default:
		done.Next = matched.Next
	}
	return a.tell(c, done, err)
}

// bulk repeats a bulk until it has seen all, or has changed so many, or would have.
func bulk(c *cobra.Command, d *desk, by outbox.Actor, b outbox.Bulk, limit int) (sum outbox.BulkResult, err error) {
	done := func() int {
		if b.DryRun {
			return sum.Matched - sum.Protected
		}
		return sum.Changed
	}
	for sum.Began = b.Began; done() < limit; {
		b.Limit = min(outbox.MaxBulk, limit-done())
		res, err := d.Bulk(c.Context(), by, b)
		sum.Matched += res.Matched
		sum.Changed += res.Changed
		sum.Protected += res.Protected
		sum.Why, sum.Next, sum.Began = cmp.Or(sum.Why, res.Why), res.Next, res.Began
		if b.After, b.Began = res.Next, res.Began; err != nil || res.Next == "" {
			return sum, err
		}
	}
	return sum, nil
}

// tell prints what came of it, also of what went wrong halfway.
func (a *acting) tell(c *cobra.Command, res outbox.BulkResult, err error) error {
	if _, judged := errors.AsType[*failure](err); err != nil && !judged && res.Matched == 0 {
		return err
	}
	if a.asJSON {
		return errors.Join(err, printJSON(c.OutOrStdout(), api.Body(res)))
	}
	text := fmt.Sprintf("matched %d, changed %d", res.Matched, res.Changed)
	if res.Protected > 0 {
		text += fmt.Sprintf(", protected %d (%s)", res.Protected, res.Why)
	}
	if res.Next != "" {
		text += "; there may be more: raise --limit"
	}
	_, printed := fmt.Fprintln(c.OutOrStdout(), text)
	return errors.Join(err, printed)
}

// confirm asks on a terminal. Where there is nobody to ask, the flag must have said so.
func confirm(c *cobra.Command, question string) error {
	if file, ok := c.InOrStdin().(*os.File); ok && !isatty.IsTerminal(file.Fd()) {
		return fail(cannotBegin, errors.New("--yes is needed where nobody can be asked"))
	}
	_, _ = fmt.Fprint(c.ErrOrStderr(), question)
	answer, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return fail(refused, errors.New("not confirmed; no message was changed"))
}
