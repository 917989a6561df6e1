package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			version, revision := build()
			_, err := fmt.Fprintf(c.OutOrStdout(), "duebox %s (%s, %s)\n", version, revision, runtime.Version())
			return fail(wentWrong, err)
		},
	}
}
