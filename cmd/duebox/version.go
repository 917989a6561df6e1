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
			_, err := fmt.Fprintln(c.OutOrStdout(), versionLine())
			return fail(wentWrong, err)
		},
	}
}

func versionLine() string {
	version, revision := build()
	return fmt.Sprintf("duebox %s (%s, %s)", version, revision, runtime.Version())
}
