package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	idleLimit = 10 * time.Second // for what is left over to go away by itself
	// In seconds: an age that no transaction reaches while nothing is wrong.
	oldTransaction = 10
)

// judge asks whether the promises were kept, and then ends the processes and asks what is left of them.
func (r *run) judge(ctx context.Context, before int) error {
	report := &r.report
	report.Seed, report.Answers = r.Seed, r.load.ledger.Counts()
	violations, found, err := Check(ctx, r.db, r.load.ledger)
	if err != nil {
		return err
	}
	late, tooLate, err := lateness(ctx, r.db, r.when)
	if err != nil {
		return err
	}
	report.Found, report.Lateness = found, late
	violations = slices.Concat(violations, tooLate, r.answers())
	leftovers, err := r.leftovers(ctx, before)
	if err != nil {
		return err
	}
	violations = append(violations, leftovers...)
	for _, death := range r.deaths.list() {
		violations = append(violations, Violation{StaysUp, death})
	}
	report.Duplicates = r.heard.count("duplicate")
	report.Violations = violations
	return nil
}

// answers judges what clients were told that they should not have been.
func (r *run) answers() (found []Violation) {
	for _, odd := range r.load.oddities() {
		found = append(found, Violation{AnswersHold, "a request that was right was refused: " + odd})
	}
	if c := r.load.ledger.Counts(); c.Moves > 0 && c.Rescheduled == 0 {
		found = append(found, Violation{Reschedules, fmt.Sprintf("%d attempts, none succeeded", c.Moves)})
	}
	return found
}

// leftovers drains all processes and looks for what they have left behind.
func (r *run) leftovers(ctx context.Context, before int) (found []Violation, err error) {
	add := func(format string, args ...any) {
		found = append(found, Violation{NothingLeft, fmt.Sprintf(format, args...)})
	}
	after := 0
	if !until(ctx, idleLimit, func() bool {
		after, err = r.goroutines(ctx)
		return err != nil || after <= before+goroutineSlack
	}) {
		add("a worker has %d goroutines, and had %d before the faults", after, before)
	}
	if err != nil {
		return nil, err
	}
	count := func(what, query string) {
		n := 0
		until(ctx, idleLimit, func() bool {
			err = errors.Join(err, r.db.QueryRowContext(ctx, query).Scan(&n))
			return err != nil || n == 0
		})
		if n > 0 {
			add("%d %s", n, what)
		}
	}
	count(fmt.Sprintf("transactions older than %d s", oldTransaction), fmt.Sprintf(
		`SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_started < NOW() - INTERVAL %d SECOND`, oldTransaction))

	for _, end := range r.drain() {
		add("%v", end)
	}
	count("transactions after all processes have ended", `SELECT COUNT(*) FROM information_schema.innodb_trx`)
	count("database connections after all processes have ended", `SELECT COUNT(*) FROM information_schema.processlist
		WHERE id <> CONNECTION_ID() AND user NOT IN ('system user', 'event_scheduler')`)
	if err != nil {
		return nil, fmt.Errorf("look for leftovers in the database: %w", err)
	}
	connections := ""
	if !until(ctx, idleLimit, func() bool {
		connections, err = r.broker.Eval(ctx, "rabbit_networking:connections().")
		return err != nil || connections == "[]"
	}) {
		add("broker connections after all processes have ended: %s", connections)
	}
	return found, err
}

// drain ends the processes as an operator would, all at once but the api, which goes first, so that nothing new comes in.
func (r *run) drain() (errs []error) {
	const limit = drainLimit + 5*time.Second
	ends := make(chan error, workers+1)
	ends <- r.api.stop(limit)
	var all sync.WaitGroup
	for _, m := range r.workers {
		all.Go(func() { ends <- m.stop(limit) })
	}
	all.Wait()
	close(ends)
	for err := range ends {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// goroutines is the largest number that any worker has.
func (r *run) goroutines(ctx context.Context) (most int, err error) {
	for _, m := range r.workers {
		n, err := goroutines(ctx, m.url)
		if err != nil {
			return 0, fmt.Errorf("ask %s for its goroutines: %w", m.name, err)
		}
		most = max(most, n)
	}
	return most, nil
}

func goroutines(ctx context.Context, url string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Close = true // a connection that stays would be counted
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(io.LimitReader(resp.Body, 1<<20))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			return strconv.Atoi(value)
		}
	}
	return 0, errors.Join(errors.New("there is no go_goroutines in its metrics"), lines.Err())
}

// until asks until ok says yes, or limit has passed.
func until(ctx context.Context, limit time.Duration, ok func() bool) bool {
	end := time.Now().Add(limit)
	for {
		if ok() {
			return true
		}
		if time.Now().After(end) || pause(ctx, look) != nil {
			return false
		}
	}
}
