package ordering

const (
	PendingOrders = pendingOrders
	StockSums     = stockSums
)
