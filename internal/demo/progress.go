package demo

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// console is standard error: lines, and on a terminal a bar below them. It is safe for concurrent use.
type console struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	bar      string
}

const clearLine = "\r\x1b[K"

// Write prints whole lines above the bar.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar == "" {
		return c.out.Write(p)
	}
	if _, err := fmt.Fprintf(c.out, "%s%s%s", clearLine, p, c.bar); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (c *console) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c, format+"\n", args...)
}

// show replaces the bar; an empty one removes it.
func (c *console) show(bar string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.terminal || bar == c.bar {
		return
	}
	c.bar = bar
	_, _ = io.WriteString(c.out, clearLine+bar)
}

// progress shows how far the run has come until ctx ends. Without a terminal it does nothing.
func (c *console) progress(ctx context.Context, db *sql.DB, d *drive) {
	if !c.terminal {
		return
	}
	defer c.show("")
	for pause(ctx, 200*time.Millisecond) == nil {
		s, err := readStatus(ctx, db)
		if err != nil {
			continue // the run itself finds out
		}
		c.show(drawBar(s, int(d.placed.Load()), len(d.plan)))
	}
}

func drawBar(s status, placed, all int) string {
	const width = 30
	ended := min(s.paid+s.closed, all)
	full := width * ended / max(1, all)
	return fmt.Sprintf("[%s%s] placed %d/%d  pending %d  paid %d  closed %d",
		strings.Repeat("#", full), strings.Repeat(".", width-full), placed, all, s.pending, s.paid, s.closed)
}

// status is how far a run has come, as the database has it.
type status struct {
	pending, paid, closed int
	live                  int           // messages that may still take effect
	untilDue              time.Duration // until the last pending order is due; negative: all are past it
}

func readStatus(ctx context.Context, db *sql.DB) (status, error) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var (
		s     status
		micro int64
	)
	err := db.QueryRowContext(ctx, `SELECT
			COALESCE(SUM(CASE WHEN status = 'pending' THEN 1 ELSE 0 END), 0),
			COALESCE(SUM(CASE WHEN status = 'paid' THEN 1 ELSE 0 END), 0),
			COALESCE(SUM(CASE WHEN status = 'closed' THEN 1 ELSE 0 END), 0),
			COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MAX(CASE WHEN status = 'pending' THEN due_at END)), -1),
			(SELECT COUNT(*) FROM outbox_messages WHERE state IN ('scheduled', 'published'))
		FROM orders`).Scan(&s.pending, &s.paid, &s.closed, &micro, &s.live)
	s.untilDue = time.Duration(micro) * time.Microsecond
	return s, err
}
