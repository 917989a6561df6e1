// Command bench measures duebox beside its ceilings, each in the same run and in interleaved rounds, and prints one JSON
// line per measurement:
//
//	bench [flags] [NAME...]
//
// Without a name it runs every benchmark; -h tells what each measures. Each starts private services of its own (internal/devenv: a database that
// flushes its log at each commit, a broker with the delayed exchange) and leaves nothing behind. Figures of different
// machines or runs cannot be compared; the ratios can.
//
// With -stored it holds each measurement against the figure that is stored of it, and fails if that is worse than 0.8 of it; -docs writes the
// page docs/benchmarks.md with plots, and the stored figures, of what it measured or of -lines of earlier runs. Held against each other are ratios,
// because they say the same on any machine, and of what has none memory and numbers of queries; times are not.
//
// The exit code is 0 when all was measured, 1 when something could not be measured, a required aim was not met or a stored figure missed, 2
// when the arguments are wrong. An aim that is not required may be missed: its line says so.
package main
