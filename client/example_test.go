package client_test

import (
	"context"
	"encoding/json"
	"time"

	"github.com/duebox/duebox/client"
)

// A reminder in half an hour, and what the consumer that gets it does, wherever it runs.
func Example() {
	ctx := context.Background()
	c, err := client.New("http://127.0.0.1:8080", client.Config{APIToken: "secret"})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	_, _, err = c.PutMessage(ctx, "cart.remind", "cart-42", client.NewMessage{Payload: json.RawMessage(`{"cart":42}`), Delay: 30 * time.Minute})
	if err != nil {
		panic(err)
	}

	remind := func(d client.Delivery) error {
		switch err := c.AskDelivery(ctx, d); {
		case client.TypeOf(err) == client.DeliveryWithdrawn:
			return nil // acknowledge it
		case err != nil:
			return err
		}
		// Send the mail, then:
		return c.FinishDelivery(ctx, d)
	}
	_ = remind
}
