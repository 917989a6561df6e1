package outbox

import "gorm.io/gorm"

// aftermath is what an effect wants to have done once its transaction has committed.
type aftermath struct{ calls []func() }

const aftermathKey = "duebox:aftermath"

// AfterCommit has call run once the effect has been committed that Handle or HandleBatch gave tx, before they return: for counting, and
// for telling others what is true then. An effect that is rolled back or run again starts over without calls. A process that dies in
// between does not call, so nothing that matters may depend on it. Of a transaction that is no effect's nobody hears the commit: there it
// does nothing.
func AfterCommit(tx *gorm.DB, call func()) {
	value, _ := tx.Get(aftermathKey)
	if a, ok := value.(*aftermath); ok {
		a.calls = append(a.calls, call)
	}
}

// in gives an effect's transaction room for calls.
func (a *aftermath) in(tx *gorm.DB) *gorm.DB { return tx.Set(aftermathKey, a).Session(&gorm.Session{}) }

// run makes the calls, once. Those of a nil aftermath are none.
func (a *aftermath) run() {
	if a == nil {
		return
	}
	calls := a.calls
	a.calls = nil
	for _, call := range calls {
		call()
	}
}
