package rabbitmq

import "time"

// SetOverrunGrace shortens what is due to the statements of outbox.Store. Before Run only.
func (c *Consumer) SetOverrunGrace(d time.Duration) { c.overrunGrace = d }

// MaxOverran is how many handlers of a queue may run that were given up.
const MaxOverran = maxOverran

// CheckEvery sets how often the queues are asked for their consumers. Before Run only.
func (c *Consumer) CheckEvery(d time.Duration) { c.every = d }

// CheckEvery sets how often a connection makes sure of what it publishes into. Before Run only.
func (p *Publisher) CheckEvery(d time.Duration) { p.every = d }
