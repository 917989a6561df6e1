package rabbitmq

import (
	"context"
	"io"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
)

func TestConnection_AlwaysKnowsWhyItHasEnded(t *testing.T) {
	t.Parallel()
	b, err := NewBroker(devtest.AMQP(t), Config{Namespace: devtest.Namespace(t)})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		end func(c *connection, ch *amqp.Channel)
		why func(t *testing.T, cause error)
	}{
		"the broker says farewell": {
			func(_ *connection, ch *amqp.Channel) {
				_ = ch.ExchangeDeclare(b.namespace+".probe", "x-nobody-has-it", false, true, true, false, nil)
			},
			func(t *testing.T, cause error) {
				t.Helper()
				require.True(t, isCode(cause, amqp.CommandInvalid), "%v", cause)
			},
		},
		"the socket ends": {
			func(c *connection, _ *amqp.Channel) { c.wire.kill(io.ErrUnexpectedEOF) },
			func(t *testing.T, cause error) {
				t.Helper()
				require.Equal(t, io.ErrUnexpectedEOF, cause)
			},
		},
		"closed from this side": {
			func(c *connection, _ *amqp.Channel) { c.close(context.Background()) },
			func(t *testing.T, cause error) {
				t.Helper()
				require.Equal(t, errClosedHere, cause)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := b.dial(t.Context(), "test", nil)
			require.NoError(t, err)
			ch, err := conn.channel(t.Context())
			require.NoError(t, err)
			c.end(conn, ch)
			select {
			case <-conn.done:
			case <-time.After(30 * time.Second):
				t.Fatal("it has not ended")
			}
			c.why(t, conn.cause())
			conn.close(t.Context())
		})
	}
}
