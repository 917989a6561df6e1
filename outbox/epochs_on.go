//go:build !duebox_noepoch

package outbox

// epochs is false only in a build made to show that the checks see what the broker's epoch prevents.
const epochs = true
