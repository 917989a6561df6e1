// Command bench measures duebox beside its ceilings, each in the same run and in interleaved rounds, and prints one JSON
// line per measurement:
//
//	bench [flags] [NAME...]
//
// Without a name it runs every benchmark. Each starts private services of its own (internal/devenv: a database that
// flushes its log at each commit, a broker with the delayed exchange) and leaves nothing behind. Figures of different
// machines or runs cannot be compared; the ratios can.
//
// The exit code is 0 when all was measured, 1 when something could not be measured or a required aim was not met, 2
// when the arguments are wrong. An aim that is not required may be missed: its line says so.
package main
