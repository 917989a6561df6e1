//go:build !duebox_noreconcile

package outbox

// reconciles is false only in a build made to show that the checks see what the reconciler mends.
const reconciles = true
