package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Scope says what a pass of the reconciler does besides its daily work, and whether it changes anything.
type Scope struct {
	// Audit adds what takes longer: dead messages and kept deliveries are reported, and the application's checks run.
	Audit bool
	// DryRun reports what a pass would mend, and changes nothing but the record of the run.
	DryRun bool
}

// Check is an audit of the application's own rows against the ledger, a part of each pass with Scope.Audit. Run must work in
// chunks, and return soon after ctx ends. It reports to the pass; an error or a panic of one check does not keep the
// others from running.
type Check struct {
	Name string
	// Kinds are those of its findings, for whoever counts from zero.
	Kinds []string
	Run   func(ctx context.Context, p *Pass) error
}

// Finding is what a pass found of one kind.
type Finding struct {
	Found  int `json:"found"`
	Mended int `json:"mended"`
	// IDs names the first of them, at most 100.
	IDs []string `json:"ids"`
}

// The kinds of findings that the ledger itself reports.
const (
	FoundEpoch       = "epoch"       // published in an earlier life of the broker; mended: scheduled again
	FoundAhead       = "ahead"       // published ahead of its time, which no strategy in use does; mended: scheduled again
	FoundOverdue     = "overdue"     // published, without effect, and not in its work queue; mended: scheduled again
	FoundLate        = "late"        // overdue, but its work queue is not drained; mended: sent once more
	FoundHopeless    = "hopeless"    // repaired too often without a delivery; dead from now on
	FoundUnpublished = "unpublished" // due for ten graces and not handed over (audit)
	FoundDead        = "dead"        // dead, and waiting for an operator (audit)
	FoundKept        = "kept"        // a delivery that no handler could be given, waiting for an operator (audit)
	FoundBroken      = "broken"      // a row that the database would not let the pass write
)

// Report is what a pass found and did.
type Report struct {
	Run      int64               `json:"run,string"` // the id of its record; 0 if skipped
	Skipped  bool                `json:"skipped"`    // another run of its kind was under way
	Audit    bool                `json:"audit"`
	DryRun   bool                `json:"dry_run"`
	Looked   map[string]int      `json:"looked"`   // what was looked at, and how many
	Findings map[string]*Finding `json:"findings"` // by kind
	Purged   int                 `json:"purged"`   // by Purge: rows whose retention had ended; of a dry run: that would be
	Left     []string            `json:"left"`     // parts that another process was at
	Errors   []string            `json:"errors"`   // parts of the pass that could not be completed
	Seconds  float64             `json:"seconds"`
}

// Found returns how many faults the pass has found, mended or not.
func (r Report) Found() (n int) {
	for _, f := range r.Findings {
		n += f.Found
	}
	return n
}

// Of returns the finding of a kind, which is empty if there was none.
func (r Report) Of(kind string) Finding {
	if f := r.Findings[kind]; f != nil {
		return *f
	}
	return Finding{}
}

// These bound a report, in memory and as a row: neither grows with what a pass finds, whatever a check makes of it.
const (
	reportedIDs   = 100 // of one kind
	reportedKinds = 100
	otherKinds    = "other" // stands for all beyond
	reportedBytes = 255     // of an id
)

// Pass is one run of the reconciler, as the parts of it see it. It is safe for concurrent use.
type Pass struct {
	scope    Scope
	progress func(Progress)
	log      *slog.Logger

	mu     sync.Mutex
	report Report
	errs   []error
	part   string
	closed bool // the report is out: what a check has left running is not heard any more
}

// Progress is how far a run has come.
type Progress struct {
	Part                          string // what is being done
	Looked, Found, Mended, Purged int    // so far, of the whole run
}

func newPass(scope Scope, cfg *ReconcileConfig) *Pass {
	return &Pass{scope: scope, progress: cfg.Progress, log: cfg.Log, report: Report{
		Audit: scope.Audit, DryRun: scope.DryRun, Looked: map[string]int{}, Findings: map[string]*Finding{}, Left: []string{}, Errors: []string{},
	}}
}

// DryRun reports whether the pass must change nothing.
func (p *Pass) DryRun() bool { return p.scope.DryRun }

// Looked adds n to the count of what was looked at, such as "orders".
func (p *Pass) Looked(what string, n int) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.report.Looked[bounded(p.report.Looked, what)] += n
	}
	p.mu.Unlock()
	if !closed {
		p.tell()
	}
}

// Found reports one fault of a kind, such as "order_without_message", by an id that an operator can look up, and whether it has
// been mended. In a dry run nothing is mended. A report takes a hundred kinds and counts further ones as "other".
func (p *Pass) Found(kind, id string, mended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	f := p.finding(kind)
	f.Found++
	if mended {
		f.Mended++
	}
	if len(f.IDs) < reportedIDs {
		f.IDs = append(f.IDs, strings.ToValidUTF8(id[:min(len(id), reportedBytes)], ""))
	}
}

// foundRows reports rows of the ledger; of those, mended have been written.
func (p *Pass) foundRows(kind string, rows []picked, mended int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(rows) == 0 || p.closed {
		return
	}
	f := p.finding(kind)
	f.Found += len(rows)
	if !p.DryRun() {
		f.Mended += mended
	}
	for _, row := range rows[:min(len(rows), reportedIDs-len(f.IDs))] {
		f.IDs = append(f.IDs, strconv.FormatInt(row.id, 10))
	}
}

// bounded returns name as a key of counts, or what stands for it when there are too many.
func bounded[T any](counts map[string]T, name string) string {
	name = clip(name)
	if _, ok := counts[name]; !ok && len(counts) >= reportedKinds {
		return otherKinds
	}
	return name
}

func (p *Pass) finding(kind string) *Finding {
	kind = bounded(p.report.Findings, kind)
	f := p.report.Findings[kind]
	if f == nil {
		f = &Finding{IDs: []string{}}
		p.report.Findings[kind] = f
	}
	return f
}

func (p *Pass) purged(n int) {
	p.mu.Lock()
	if !p.closed {
		p.report.Purged += n
	}
	p.mu.Unlock()
	p.tell()
}

func (p *Pass) tell() {
	if p.progress == nil {
		return
	}
	p.mu.Lock()
	now := Progress{Part: p.part, Purged: p.report.Purged}
	for _, n := range p.report.Looked {
		now.Looked += n
	}
	for _, f := range p.report.Findings {
		now.Found += f.Found
		now.Mended += f.Mended
	}
	p.mu.Unlock()
	p.progress(now)
}

// run does one part of the pass. What goes wrong in it, a panic included, is written into the report and does not keep the next
// part from running.
func (p *Pass) run(ctx context.Context, part string, do func(ctx context.Context, p *Pass) error) {
	ctx, cancel := context.WithTimeout(ctx, partLimit)
	defer cancel()
	p.runLong(ctx, part, do)
}

// runLong is run for a part that cannot be stuck, because it goes on in steps which have deadlines: it may take as long as it has
// something to do.
func (p *Pass) runLong(ctx context.Context, part string, do func(ctx context.Context, p *Pass) error) {
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	p.part = part
	p.mu.Unlock()
	p.tell()
	if err := unbroken(ctx, p, do); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.errs = append(p.errs, fmt.Errorf("%s: %w", part, err))
	}
}

// leave notes that a part was not done, because another process was at it (err is nil) or it could not be found out.
func (p *Pass) leave(part string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s: %w", part, err))
		return
	}
	p.report.Left = append(p.report.Left, part)
}

const (
	// How long a part of a run may take, unless it is for runLong. Beyond that it is stuck, and would keep the next run of its kind from beginning.
	partLimit = time.Hour
	// How long a part may take to return after its context has ended.
	partGrace = 20 * time.Second
)

// unbroken runs a part in a goroutine of its own. A panic, an end of the goroutine and a part that does not return are its error.
func unbroken(ctx context.Context, p *Pass, do func(ctx context.Context, p *Pass) error) error {
	returned := make(chan error, 1)
	go func() {
		err := errors.New("it ended its goroutine (runtime.Goexit) instead of returning")
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("panic: %v", cause)
				p.log.LogAttrs(ctx, slog.LevelError, "a part of the run panicked", slog.Any("error", err), slog.String("stack", string(debug.Stack())))
			}
			returned <- err
		}()
		err = do(ctx, p)
	}()
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(partGrace)
	defer grace.Stop()
	select {
	case err := <-returned:
		return err
	case <-grace.C:
		return fmt.Errorf("it has not returned after its context ended: %w", context.Cause(ctx))
	}
}

// end closes the report.
func (p *Pass) end(ctx context.Context, start time.Time) (Report, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		p.errs = append(p.errs, fmt.Errorf("the run was ended: %w", context.Cause(ctx)))
	}
	for _, err := range p.errs {
		p.report.Errors = append(p.report.Errors, errorText(err))
	}
	p.report.Seconds = time.Since(start).Seconds()
	p.closed = true
	return p.report, errors.Join(p.errs...)
}
