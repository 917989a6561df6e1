// Package check holds no code but tests: that what is below deploy fits the program. A module of its own, so that the types of
// Kubernetes are nobody's dependency.
package check
