//go:build !duebox_noguard

package outbox

// guarded is false only in a build made to show that the checks see what the guard prevents.
const guarded = true
