package rabbitmq

import (
	"encoding/json"
	"fmt"
	"math"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duebox/duebox/outbox"
)

// strayOf is a delivery that is malformed because of err. Whoever keeps it cuts what is too large to be kept.
func strayOf(d *amqp.Delivery, err error) outbox.Stray {
	return outbox.Stray{
		Reason:     "malformed",
		Detail:     err.Error(),
		MessageID:  d.MessageId,
		RoutingKey: d.RoutingKey,
		Headers:    headersJSON(d.Headers),
		Payload:    d.Body,
	}
}

// headersJSON shows a header table, whatever is in it.
func headersJSON(table amqp.Table) []byte {
	text, err := json.Marshal(plain(table))
	if err != nil { // plain leaves nothing that JSON cannot hold
		return []byte("null")
	}
	return text
}

// plain replaces what JSON has no word for.
func plain(value any) any {
	switch v := value.(type) {
	case nil, bool, string, []byte, int, int8, int16, int32, int64, uint8, uint16, uint32:
		return v
	case float32:
		return plain(float64(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
		return v
	case amqp.Table:
		out := make(map[string]any, len(v))
		for name, element := range v {
			out[name] = plain(element)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = plain(element)
		}
		return out
	}
	return fmt.Sprint(value)
}
