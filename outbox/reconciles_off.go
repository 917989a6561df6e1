//go:build duebox_noreconcile

package outbox

const reconciles = false
