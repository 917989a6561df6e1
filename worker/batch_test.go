package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

// Many orders of few products come due at once; one's effect never succeeds. The others close all the same, each once, and
// without an attempt.
func TestWorker_ClosesManyOrdersTogether(t *testing.T) {
	t.Parallel()
	p := newPlace(t, model.TopicExpire)
	shop, err := ordering.New(p.db, p.store, ordering.Config{Normal: 6 * time.Second})
	require.NoError(t, err)
	ctx := t.Context()
	for i := range 3 {
		_, err := shop.SetStock(ctx, model.Stocking{SKU: fmt.Sprint(i), Name: "A", Stock: 1000})
		require.NoError(t, err)
	}
	const orders = 300
	nos := make([]string, orders)
	for i := range orders {
		o, err := shop.Place(ctx, model.Draft{Kind: model.Normal, User: "u", Items: []model.Item{
			{SKU: fmt.Sprint((i + 1) % 3), Quantity: 1}, {SKU: fmt.Sprint(i % 3), Quantity: 2},
		}}, "")
		require.NoError(t, err)
		nos[i] = o.No
	}
	require.Equal(t, int64(1), p.exec(t, `UPDATE outbox_messages SET payload = 'x' WHERE message_key = ?`, []byte(nos[100])))
	require.NoError(t, p.db.Exec(`UPDATE outbox_messages SET due_at = UTC_TIMESTAMP(6) + INTERVAL 1 SECOND, available_at = UTC_TIMESTAMP(6) + INTERVAL 1 SECOND`).Error)
	require.NoError(t, p.db.Exec(`UPDATE orders SET due_at = UTC_TIMESTAMP(6) + INTERVAL 1 SECOND`).Error)
	p.start(t, worker.Config{MaxAttempts: 1, BatchEffects: map[string]worker.BatchEffect{model.TopicExpire: shop.ExpireAll}}, nil)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Done) == orders-1 }, patience, tick)
	require.Eventually(t, func() bool { return p.inState(t, outbox.Dead) == 1 }, patience, tick)
	require.Equal(t, orders-1, p.count(t, `SELECT COUNT(*) FROM orders WHERE status = 'closed'`))
	require.Equal(t, 1, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE attempts > 0`))
	require.Equal(t, orders-1, p.count(t, `SELECT COUNT(*) FROM effects`))
	require.Equal(t, 3, p.count(t, `SELECT SUM(reserved) FROM products`), "what the one order that is left holds")
	require.Equal(t, 2997, p.count(t, `SELECT SUM(available) FROM products`))
	require.Less(t, p.count(t, `SELECT COUNT(DISTINCT finished_at) FROM outbox_messages WHERE state = 'done'`), orders/2, "nothing was done together")
}

func TestNew_RefusesATopicWithTwoEffectsOrNone(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	shop, err := ordering.New(p.db, p.store, ordering.Config{})
	require.NoError(t, err)
	_, err = worker.New(p.db, p.amqpURL, map[string]worker.Effect{model.TopicExpire: shop.Expire}, worker.Config{
		BatchEffects: map[string]worker.BatchEffect{model.TopicExpire: shop.ExpireAll},
	})
	require.ErrorContains(t, err, `topic "order.expire" has an effect and a batch effect`)
	_, err = worker.New(p.db, p.amqpURL, map[string]worker.Effect{"a": nil}, worker.Config{})
	require.ErrorContains(t, err, `the effect of topic "a" is nil`)
	_, err = worker.New(p.db, p.amqpURL, nil, worker.Config{BatchEffects: map[string]worker.BatchEffect{"a": nil}})
	require.ErrorContains(t, err, `the batch effect of topic "a" is nil`)
	_, err = worker.New(&gorm.DB{}, p.amqpURL, nil, worker.Config{})
	require.ErrorContains(t, err, "at least one effect")
}
