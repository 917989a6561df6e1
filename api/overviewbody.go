package api

import (
	"github.com/duebox/duebox/outbox"
)

type overviewJSON struct {
	Now         stamp                `json:"now"`
	Verdict     verdictJSON          `json:"verdict"`
	Counts      map[string]countJSON `json:"counts"`
	DueNextHour []minuteJSON         `json:"due_next_hour"`
	Lateness    latenessJSON         `json:"lateness"`
	Rates       []rateJSON           `json:"rates"`
	Workers     []workerJSON         `json:"workers"`
	Reconcile   reconcileJSON        `json:"reconcile"`
}

type verdictJSON struct {
	OK                bool    `json:"ok"`
	Text              string  `json:"text"`
	Late              int     `json:"late"`
	More              bool    `json:"more"`
	OldestLateSeconds float64 `json:"oldest_late_seconds"`
	Why               string  `json:"why"`
}

type countJSON struct {
	Count int  `json:"count"`
	More  bool `json:"more"`
}

type minuteJSON struct {
	From stamp `json:"from"`
	countJSON
}

type latenessJSON struct {
	Since   stamp        `json:"since"`
	Buckets []bucketJSON `json:"buckets"`
	P50Ms   float64      `json:"p50_ms"`
	P99Ms   float64      `json:"p99_ms"`
	MaxMs   float64      `json:"max_ms"`
	Of      int          `json:"of"`
}

type bucketJSON struct {
	LeMs  *float64 `json:"le_ms"`
	Count int      `json:"count"`
}

type rateJSON struct {
	At            stamp   `json:"at"`
	PublishedPerS float64 `json:"published_per_s"`
	FinishedPerS  float64 `json:"finished_per_s"`
}

type workerJSON struct {
	Owner     string      `json:"owner"`
	SeenAt    stamp       `json:"seen_at"`
	Alive     bool        `json:"alive"`
	Strategy  string      `json:"strategy"`
	Why       string      `json:"why"`
	Epoch     int64       `json:"epoch"`
	Connected bool        `json:"connected"`
	Blocked   bool        `json:"blocked"`
	Reason    string      `json:"reason"`
	Since     stamp       `json:"since"`
	Queues    []queueJSON `json:"queues"`
}

type queueJSON struct {
	Topic     string `json:"topic"`
	Ready     int    `json:"ready"`
	Consumers int    `json:"consumers"`
}

type reconcileJSON struct {
	LastPass  *runJSON `json:"last_pass"`
	LastAudit *runJSON `json:"last_audit"`
}

func overviewBody(v outbox.Overview) overviewJSON {
	body := overviewJSON{
		Now: stamp(v.Now),
		Verdict: verdictJSON{
			OK: v.Verdict.OK, Text: v.Verdict.Text, Late: v.Verdict.Late.N, More: v.Verdict.Late.More,
			OldestLateSeconds: v.Verdict.Oldest.Seconds(), Why: v.Verdict.Why,
		},
		Counts:      make(map[string]countJSON, len(v.Counts)),
		DueNextHour: make([]minuteJSON, len(v.DueNextHour)),
		Lateness: latenessJSON{
			Since: stamp(v.Lateness.Since), P50Ms: *millis(&v.Lateness.P50), P99Ms: *millis(&v.Lateness.P99), MaxMs: *millis(&v.Lateness.Max),
			Buckets: make([]bucketJSON, len(v.Lateness.Buckets)), Of: v.Lateness.Of,
		},
		Rates:   []rateJSON{},
		Workers: make([]workerJSON, len(v.Workers)),
	}
	for i, w := range v.Workers {
		body.Workers[i] = workerBody(w)
	}
	for state, n := range v.Counts {
		body.Counts[state] = countJSON{n.N, n.More}
	}
	for i, m := range v.DueNextHour {
		body.DueNextHour[i] = minuteJSON{stamp(m.From), countJSON{m.N, m.More}}
	}
	for i, b := range v.Lateness.Buckets {
		body.Lateness.Buckets[i].Count = b.Count
		if b.UpTo > 0 {
			body.Lateness.Buckets[i].LeMs = millis(&b.UpTo)
		}
	}
	if v.LastPass != nil {
		run := runBody(*v.LastPass)
		body.Reconcile.LastPass = &run
	}
	if v.LastAudit != nil {
		run := runBody(*v.LastAudit)
		body.Reconcile.LastAudit = &run
	}
	return body
}

func workerBody(w outbox.Peer) workerJSON {
	body := workerJSON{
		Owner: w.Owner, SeenAt: stamp(w.SeenAt), Alive: w.Alive(), Strategy: w.Strategy, Why: w.Why, Epoch: w.Epoch,
		Connected: w.Connected, Blocked: w.Blocked, Reason: w.Reason, Since: stamp(w.Since), Queues: make([]queueJSON, len(w.Queues)),
	}
	for i, q := range w.Queues {
		body.Queues[i] = queueJSON(q)
	}
	return body
}
