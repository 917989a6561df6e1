package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/devenv/devtest"
	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/worker"
)

func TestWorker_ClosesWhatIsNotPaidAndWithdrawsWhatIs(t *testing.T) {
	t.Parallel()
	p := newPlace(t, model.TopicExpire)
	shop, err := ordering.New(p.db, p.store, ordering.Config{Normal: 3 * time.Second})
	require.NoError(t, err)
	p.start(t, worker.Config{BatchEffects: map[string]worker.BatchEffect{model.TopicExpire: shop.ExpireAll}}, nil)
	ctx := t.Context()
	_, err = shop.SetStock(ctx, model.Stocking{SKU: "A", Name: "A", Stock: 100})
	require.NoError(t, err)

	const orders = 20
	var placed []model.Order
	for i := range orders {
		o, err := shop.Place(ctx, model.Draft{Kind: model.Normal, User: fmt.Sprint("u", i), Items: []model.Item{{SKU: "A", Quantity: 2, Price: 5}}}, "")
		require.NoError(t, err)
		placed = append(placed, o)
		if i%2 == 0 {
			_, err := shop.Pay(ctx, o.No, model.Payment{ID: "p" + o.No, Amount: 10})
			require.NoError(t, err)
		}
	}
	require.Eventually(t, func() bool {
		return p.count(t, `SELECT COUNT(*) FROM orders WHERE status = 'pending'`) == 0
	}, patience, tick)

	for i, o := range placed {
		o, err := shop.Order(ctx, o.No)
		require.NoError(t, err)
		if i%2 == 0 {
			require.Equal(t, model.Paid, o.Status)
			continue
		}
		require.Equal(t, model.Closed, o.Status)
		require.Equal(t, model.Timeout, o.CloseReason)
		require.False(t, o.ClosedAt.Before(o.DueAt), "closed %v, due %v", o.ClosedAt, o.DueAt)
	}
	product, err := shop.Product(ctx, "A")
	require.NoError(t, err)
	require.Equal(t, model.Product{SKU: "A", Name: "A", Available: 80, Reserved: 0, Sold: 20}, product)
	p.requireOnce(t, orders/2)

	// Money that comes now goes back.
	_, err = shop.Pay(ctx, placed[1].No, model.Payment{ID: "late", Amount: 10})
	require.NoError(t, err)
	require.Equal(t, 1, p.count(t, `SELECT COUNT(*) FROM refunds`))
}

// TestScenario27_HealthyBrokerMeansNoRepublish: orders that wait much longer than a pass takes to come round.
func TestScenario27_HealthyBrokerMeansNoRepublish(t *testing.T) {
	t.Parallel()
	p := newPlace(t, model.TopicExpire)
	const orders = 200
	minute := devtest.Minute()
	shop, err := ordering.New(p.db, p.store, ordering.Config{Normal: 30 * minute})
	require.NoError(t, err)
	passes := make(chan struct{}, 1000)
	p.start(t, worker.Config{
		ReconcileSchedule: "@every " + minute.String(), Grace: max(5*time.Second, minute/2),
		Routines: []worker.Routine{{Name: "count", Schedule: "@every " + minute.String(), Run: func(context.Context) error {
			passes <- struct{}{}
			return nil
		}}},
		BatchEffects: map[string]worker.BatchEffect{model.TopicExpire: shop.ExpireAll},
	}, nil)
	ctx := t.Context()
	_, err = shop.SetStock(ctx, model.Stocking{SKU: "A", Name: "A", Stock: orders})
	require.NoError(t, err)
	for range orders {
		_, err := shop.Place(ctx, model.Draft{Kind: model.Normal, User: "u", Items: []model.Item{{SKU: "A", Quantity: 1}}}, "")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return p.count(t, `SELECT COUNT(*) FROM orders WHERE status = 'closed'`) == orders }, 30*minute+patience, tick)
	require.GreaterOrEqual(t, len(passes), 25)
	p.requireOnce(t, orders)
	require.Zero(t, p.count(t, `SELECT COUNT(*) FROM outbox_messages WHERE publishes > 1 OR repairs > 0`))
}
