package demo_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/demo"
)

func TestResult_HasTheNamesOfTheContract(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(demo.Result{
		Orders: 6, Paid: 1, Closed: 2, Pending: 3, Refunded: 4, Lost: 5, Early: 7, DuplicateDeliveries: 8, DuplicateEffects: 9,
		Republished: 10, StockConserved: true, LatenessMS: demo.Lateness{P50: 1.5, P99: 2, Max: 3}, Strategy: "plugin", Exchange: "stand-in", Seconds: 12.3,
	})
	require.NoError(t, err)
	require.Equal(t, `{"orders":6,"paid":1,"closed":2,"pending":3,"refunded":4,"lost":5,"early":7,"duplicate_deliveries":8,`+
		`"duplicate_effects":9,"republished":10,"stock_conserved":true,"lateness_ms":{"p50":1.5,"p99":2,"max":3},`+
		`"strategy":"plugin","exchange":"stand-in","seconds":12.3}`, string(b))
}
