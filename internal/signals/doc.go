// Package signals holds the dashboards and alerts in deploy against what api and worker export: the golden file of package
// cmd/duebox, which a test of that package holds against the running processes. It is a module of its own, because the parser of
// PromQL brings much that the product does not need. There is nothing in it but tests.
package signals
