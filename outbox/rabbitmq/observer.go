package rabbitmq

// The roles of connections, as an Observer sees them.
const (
	RolePublisher = "publisher"
	RoleConsumer  = "consumer"
)

// Observer is told what happens to the connections of publishers and consumers: metrics and readiness hang on it. Any
// function may be nil. They are called from several goroutines and must return at once.
type Observer struct {
	// Connected is called when a connection is there; a publisher's when everything is declared, its epoch is known
	// (PublisherState.Epoch) and it can be published on.
	Connected func(role string)
	// Disconnected is called when that has ended, with the reason.
	Disconnected func(role string, err error)
	// Blocked is called when the broker says that it takes no messages for now, for example because its memory is full.
	Blocked func(role, reason string)
	// Unblocked is called when it takes messages again. It is not called when the connection ends first.
	Unblocked func(role string)
	// Malformed is called for each delivery that could not be read and was kept for an operator.
	Malformed func(queue string)
}

func (o *Observer) connected(role string) {
	if o.Connected != nil {
		o.Connected(role)
	}
}

func (o *Observer) disconnected(role string, err error) {
	if o.Disconnected != nil {
		o.Disconnected(role, err)
	}
}

func (o *Observer) blocked(role string, active bool, reason string) {
	switch {
	case active && o.Blocked != nil:
		o.Blocked(role, reason)
	case !active && o.Unblocked != nil:
		o.Unblocked(role)
	}
}

func (o *Observer) malformed(queue string) {
	if o.Malformed != nil {
		o.Malformed(queue)
	}
}
