package chaos

import "time"

// Without is a build of the product that lacks a part, what is done to it, and the rule that must be seen broken then: it
// shows that the check sees what the part prevents.
type Without struct {
	// Part is what it lacks; it is built with the tag duebox_no and this.
	Part   string
	Faults []Fault
	Breaks Rule
}

// Parts lists the parts that a build can lack.
func Parts() []Without {
	brief := func(k Kind, lasts time.Duration) []Fault { return []Fault{{Kind: k, Victim: everyone, Lasts: lasts}} }
	return []Without{
		// What the killed broker still has arrives twice, because all of it is published again.
		{"guard", brief(KillBroker, 0), EffectOnce},
		// What the wiped broker had comes only when the grace has passed.
		{"epoch", brief(WipeBroker, 0), OnTime},
		// What fires while the binding is missing is dropped, and nobody notices.
		{"reconcile", brief(UnbindDelay, longestFault), NothingLost},
	}
}

// Apply makes o a run for this build.
func (w Without) Apply(o Options) Options {
	o.Faults, o.Presale = w.Faults, 40*time.Second
	return o
}
