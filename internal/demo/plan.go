package demo

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/duebox/duebox/client"
)

// planned is an order that will be placed, and what its buyer will do.
type planned struct {
	name  string // unique in the plan
	kind  string
	user  string
	items []client.Item
	// payAfter is how long after placing it is paid; negative: never.
	payAfter time.Duration
	// late says that it is paid long after it must have been closed: the money has to come back.
	late bool
}

// realLimit is the time limit of the shop whose payment delays are followed: what --timeout stands for.
const realLimit = 30 * time.Minute

// limits are the time limits of the three kinds.
type limits struct{ normal, flash, presale time.Duration }

func limitsOf(timeout time.Duration) limits {
	return limits{normal: timeout, flash: timeout / 3, presale: 2 * timeout}
}

func (l limits) of(kind string) time.Duration {
	switch kind {
	case "flash":
		return l.flash
	case "presale":
		return l.presale
	default:
		return l.normal
	}
}

// remindBefore stands for the five minutes before closing at which buyers are reminded.
func (l limits) remindBefore() time.Duration { return l.normal / 6 }

// compress makes a real payment delay as much shorter as realLimit is made by the limit of normal orders. What would
// be paid later than twice the order's own limit is paid at twice the limit.
func (l limits) compress(kind string, realDelay time.Duration) (payAfter time.Duration, late bool) {
	scale := float64(l.normal) / float64(realLimit)
	d := time.Duration(float64(realDelay) * scale).Round(time.Millisecond)
	if latest := 2 * l.of(kind); d > latest {
		return latest, true
	}
	return d, false
}

// paymentDelay is a point of the distribution of payment delays: this share of all orders is paid within that time.
type paymentDelay struct {
	share  float64
	within time.Duration
}

// paymentDelays are quantiles of the payment delays in a public sample of a marketplace's orders, 2016 to 2018. The last
// 1.8 % are never paid. Where the sample's tail ends does not matter here: it is beyond twice any limit.
func paymentDelays() []paymentDelay {
	return []paymentDelay{
		{0, 0},
		{0.098, 10 * time.Minute},
		{0.346, 15 * time.Minute},
		{0.491, 20*time.Minute + 42*time.Second}, // the median of those paid
		{0.561, 30 * time.Minute},
		{0.617, time.Hour},
		{0.802, 24 * time.Hour},
		{0.982, 30 * 24 * time.Hour},
	}
}

// delayAt is the payment delay at u, in [0, 1), of the distribution, linear between its points; negative: never paid.
func delayAt(u float64) time.Duration {
	points := paymentDelays()
	for i, p := range points[1:] {
		if u < p.share {
			before := points[i]
			part := (u - before.share) / (p.share - before.share)
			return before.within + time.Duration(part*float64(p.within-before.within))
		}
	}
	return -1
}

// mix plans n orders of all kinds for twenty products. It is the same plan for the same arguments.
func mix(n int, l limits) []planned {
	random := rand.New(rand.NewPCG(2016, 2018)) //nolint:gosec // repeatable on purpose
	plan := make([]planned, n)
	for i := range plan {
		p := planned{
			name:     fmt.Sprintf("demo-%d", i+1),
			user:     fmt.Sprintf("user-%03d", 1+random.IntN(100)),
			kind:     pickKind(random.IntN(10)),
			payAfter: -1,
		}
		for _, product := range random.Perm(20)[:1+random.IntN(3)] {
			p.items = append(p.items, client.Item{
				SKU: fmt.Sprintf("SKU-%02d", product+1), Quantity: 1 + random.Int64N(3), Price: 500 * (1 + int64(product)),
			})
		}
		if d := delayAt(random.Float64()); d >= 0 {
			p.payAfter, p.late = l.compress(p.kind, d)
		}
		plan[i] = p
	}
	return plan
}

// pickKind makes seven of ten orders normal, two flash and one presale.
func pickKind(of10 int) string {
	switch {
	case of10 < 7:
		return "normal"
	case of10 < 9:
		return "flash"
	default:
		return "presale"
	}
}

// takes is how long a plan takes, if nothing stands still: until the last order is closed or paid, and nothing more was heard
// of for a moment.
func takes(plan []planned, rate float64, l limits) time.Duration {
	var end time.Duration
	for i, p := range plan {
		placed := time.Duration(float64(i) / rate * float64(time.Second))
		lasts := p.payAfter
		if lasts < 0 {
			lasts = l.of(p.kind)
		}
		end = max(end, placed+lasts)
	}
	return end + quietTime
}

// stock is how many units of each product the plan asks for.
func stock(plan []planned) map[string]int64 {
	units := map[string]int64{}
	for _, p := range plan {
		for _, it := range p.items {
			units[it.SKU] += it.Quantity
		}
	}
	return units
}
