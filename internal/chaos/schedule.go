package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Fault is one thing done to the system and undone again.
type Fault struct {
	Kind Kind
	// Victim is the worker whom it befalls, from 0; everybody has everyone.
	Victim int
	// Lasts is from when it is there until it begins to be undone.
	Lasts time.Duration
}

const everyone = -1

func (f Fault) String() string {
	victim := ""
	if f.Victim != everyone {
		victim = fmt.Sprintf(" (worker %d)", f.Victim+1)
	}
	return fmt.Sprintf("%s%s for %.1f s", f.Kind, victim, f.Lasts.Seconds())
}

// Step is one or two faults at a time, of which the second begins one second after the first.
type Step struct {
	// Pause is from the end of the step before until this one begins.
	Pause  time.Duration
	Faults []Fault
}

func (s Step) String() string {
	words := make([]string, len(s.Faults))
	for i, f := range s.Faults {
		words[i] = f.String()
	}
	return strings.Join(words, " + ")
}

const (
	shortestPause, longestPause = 2 * time.Second, 5 * time.Second
	// RabbitMQ 3.10 remembers with a delay of three seconds that it has a quorum queue, and one that it has half forgotten
	// never works again: no kill may follow so soon upon a start with an empty disk.
	queueAge = settling
	offset   = time.Second // of a step's second fault
)

// draw is the schedule for about total, the same for the same arguments. It deals the kinds like cards, so that each comes up
// before any comes again, and leaves the system in peace for a while whenever all have been dealt.
func draw(seed uint64, total time.Duration, kinds []kind) []Step {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable on purpose
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(random.Int64N(int64(most-least)+1)).Round(100*time.Millisecond)
	}
	var (
		steps []Step
		deck  []kind
		took  time.Duration
		wiped bool
	)
	deal := func(beside string) (kind, bool) {
		for i, k := range deck {
			if k.target != beside {
				deck = slices.Delete(deck, i, i+1)
				return k, true
			}
		}
		return kind{}, false
	}
	for took < total {
		step := Step{Pause: between(shortestPause, longestPause)}
		if len(deck) == 0 {
			deck = slices.Clone(kinds)
			random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			if len(steps) > 0 {
				step.Pause = settling + 2*bound
			}
		}
		var lasts time.Duration
		add := func(k kind) {
			f := Fault{Kind: k.name, Victim: everyone, Lasts: between(k.least, k.most)}
			if k.one || k.some && random.IntN(2) == 0 {
				f.Victim = random.IntN(workers)
			}
			lasts = max(lasts, time.Duration(len(step.Faults))*offset+f.Lasts+k.undoing)
			step.Faults = append(step.Faults, f)
		}
		first, _ := deal("")
		add(first)
		if random.IntN(3) == 0 {
			if second, ok := deal(first.target); ok {
				add(second)
			}
		}
		has := func(kind Kind) bool {
			return slices.ContainsFunc(step.Faults, func(f Fault) bool { return f.Kind == kind })
		}
		if wiped && has(KillBroker) {
			step.Pause = max(step.Pause, queueAge)
		}
		wiped = has(WipeBroker)
		steps = append(steps, step)
		took += step.Pause + lasts
	}
	return steps
}

// drawStrategy is how messages are delayed in the run: mostly by the plugin, which can lose most.
func drawStrategy(seed uint64) string {
	return []string{"auto", "auto", "hold", "tiers"}[rand.New(rand.NewPCG(seed, 2)).IntN(4)] //nolint:gosec // repeatable on purpose
}

// directed is a schedule of the given faults, one after the other.
func directed(faults []Fault) []Step {
	steps := make([]Step, len(faults))
	for i, f := range faults {
		steps[i] = Step{Pause: longestPause, Faults: []Fault{f}}
	}
	return steps
}
