//go:build duebox_noguard

package outbox

const guarded = false
