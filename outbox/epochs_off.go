//go:build duebox_noepoch

package outbox

const epochs = false
