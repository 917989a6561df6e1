package rabbitmq_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv"
	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

func TestExamine_TellsWhatTheBrokerIsAndWhatItRefuses(t *testing.T) {
	t.Parallel()
	node := devtest.RabbitMQ(t, devenv.RabbitConfig{Plugin: devenv.ExchangeNone})
	x, err := at(t, node.URL(), rabbitmq.Config{Namespace: "shop"}).Examine(t.Context())
	require.NoError(t, err)
	require.Equal(t, "RabbitMQ", x.Product)
	require.Regexp(t, `^\d+\.\d+\.\d+`, x.Version)
	require.False(t, x.Delayed)
	shared, err := at(t, devtest.AMQP(t), rabbitmq.Config{Namespace: devtest.Namespace(t)}).Examine(t.Context())
	require.NoError(t, err)
	require.True(t, shared.Delayed)

	_, err = node.Eval(t.Context(), `rabbit_auth_backend_internal:add_user(<<"guest2">>, <<"pw">>, <<"test">>).`)
	require.NoError(t, err)
	u, err := url.Parse(node.URL())
	require.NoError(t, err)
	u.User = url.UserPassword("guest2", "pw")
	for _, rights := range []string{
		`<<"^shop\\.">>, <<"^shop\\.">>, <<"^$">>`, `<<"^shop\\.">>, <<"^$">>, <<"^shop\\.">>`, `<<"^other\\.">>, <<".*">>, <<".*">>`,
	} {
		_, err = node.Eval(t.Context(), `rabbit_auth_backend_internal:set_permissions(<<"guest2">>, <<"/">>, `+rights+`, <<"test">>).`)
		require.NoError(t, err)
		_, err = at(t, u.String(), rabbitmq.Config{Namespace: "shop"}).Examine(t.Context())
		require.ErrorIs(t, err, rabbitmq.ErrForbidden, rights)
	}
	_, err = node.Eval(t.Context(), `rabbit_auth_backend_internal:set_permissions(<<"guest2">>, <<"/">>, <<"^shop\\.">>, <<"^shop\\.">>, <<"^shop\\.">>, <<"test">>).`)
	require.NoError(t, err)
	_, err = at(t, u.String(), rabbitmq.Config{Namespace: "shop"}).Examine(t.Context())
	require.NoError(t, err)
}
