package api

import (
	"strconv"
	"time"

	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
)

// The bodies of answers. An absent time or reason is null; no field is ever left out.

type orderJSON struct {
	No          string     `json:"no"`
	Kind        string     `json:"kind"`
	User        string     `json:"user"`
	Status      string     `json:"status"`
	CloseReason *string    `json:"close_reason"`
	Items       []itemJSON `json:"items"`
	Total       int64      `json:"total"`
	Refunded    int64      `json:"refunded"`
	DueAt       stamp      `json:"due_at"`
	CreatedAt   stamp      `json:"created_at"`
	RemindedAt  stamp      `json:"reminded_at"`
	PaidAt      stamp      `json:"paid_at"`
	ClosedAt    stamp      `json:"closed_at"`
}

type itemJSON struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Price    int64  `json:"price"`
}

type pageJSON struct {
	Orders []orderJSON `json:"orders"`
	Next   string      `json:"next"`
}

type productJSON struct {
	SKU       string `json:"sku"`
	Name      string `json:"name"`
	Available int64  `json:"available"`
	Reserved  int64  `json:"reserved"`
	Sold      int64  `json:"sold"`
}

// runJSON is a run of the reconciler. Report is null until there is one.
type runJSON struct {
	ID          string         `json:"id"`
	Kind        string         `json:"kind"`
	State       string         `json:"state"`
	DryRun      bool           `json:"dry_run"`
	Owner       *string        `json:"owner"`
	RequestedAt stamp          `json:"requested_at"`
	StartedAt   stamp          `json:"started_at"`
	FinishedAt  stamp          `json:"finished_at"`
	Error       *string        `json:"error"`
	Report      *outbox.Report `json:"report"`
}

// requestedJSON is the id of a run, with which to ask for it.
type requestedJSON struct {
	ID string `json:"id"`
}

// messageJSON is a message without its payload.
type messageJSON struct {
	Topic       string  `json:"topic"`
	Key         string  `json:"key"`
	ID          string  `json:"id"`
	State       string  `json:"state"`
	Generation  int64   `json:"generation"`
	DueAt       stamp   `json:"due_at"`
	Tracked     bool    `json:"tracked"`
	Attempts    int     `json:"attempts"`
	Publishes   int     `json:"publishes"`
	Repairs     int     `json:"repairs"`
	LastError   *string `json:"last_error"`
	CreatedAt   stamp   `json:"created_at"`
	PublishedAt stamp   `json:"published_at"`
	FinishedAt  stamp   `json:"finished_at"`
}

// deliveryJSON is what a consumer may do with a delivery: run it, or nothing more because it is done.
type deliveryJSON struct {
	ID         string `json:"id"`
	Generation int64  `json:"generation"`
	State      string `json:"state"`
}

// stamp is written as RFC 3339 in UTC with microseconds, the zero time as null.
type stamp time.Time

// MarshalJSON implements json.Marshaler.
func (s stamp) MarshalJSON() ([]byte, error) {
	t := time.Time(s)
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

func orderBody(o model.Order) orderJSON {
	body := orderJSON{
		No: o.No, Kind: string(o.Kind), User: o.User, Status: string(o.Status), Items: make([]itemJSON, len(o.Items)),
		CloseReason: textOrNull(string(o.CloseReason)), Total: o.Total, Refunded: o.Refunded,
		DueAt: stamp(o.DueAt), CreatedAt: stamp(o.CreatedAt), RemindedAt: stamp(o.RemindedAt), PaidAt: stamp(o.PaidAt), ClosedAt: stamp(o.ClosedAt),
	}
	for i, it := range o.Items {
		body.Items[i] = itemJSON(it)
	}
	return body
}

func pageBody(orders []model.Order, next string) pageJSON {
	body := pageJSON{Orders: make([]orderJSON, len(orders)), Next: next}
	for i, o := range orders {
		body.Orders[i] = orderBody(o)
	}
	return body
}

func runBody(r outbox.Run) runJSON {
	body := runJSON{
		ID: strconv.FormatInt(r.ID, 10), Kind: string(r.Kind), State: string(r.State), DryRun: r.DryRun, Owner: textOrNull(r.Owner),
		RequestedAt: stamp(r.RequestedAt), StartedAt: stamp(r.StartedAt), FinishedAt: stamp(r.FinishedAt), Error: textOrNull(r.Error),
	}
	if r.Report.Run != 0 {
		body.Report = &r.Report
	}
	return body
}

func messageBody(r outbox.Record) messageJSON {
	return messageJSON{
		Topic: r.Topic, Key: r.Key, ID: strconv.FormatInt(r.ID, 10), State: string(r.State), Generation: r.Generation, Tracked: !r.Untracked,
		Attempts: r.Attempts, Publishes: r.Publishes, Repairs: r.Repairs, LastError: textOrNull(r.LastError),
		DueAt: stamp(r.DueAt), CreatedAt: stamp(r.CreatedAt), PublishedAt: stamp(r.PublishedAt), FinishedAt: stamp(r.FinishedAt),
	}
}

func deliveryBody(d outbox.Delivery, state string) deliveryJSON {
	return deliveryJSON{ID: strconv.FormatInt(d.ID, 10), Generation: d.Generation, State: state}
}

// textOrNull is null for an empty text.
func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func productBody(p model.Product) productJSON { return productJSON(p) }
