package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func newConfig() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "config",
		Short: "Show the settings as they take effect and where each comes from, secrets masked; exits with 2 if some are wrong",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			all := cfg.Settings(os.Environ())
			if asJSON {
				return fail(wentWrong, json.NewEncoder(c.OutOrStdout()).Encode(all))
			}
			table := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, s := range all {
				_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, s.Value, s.Source) // Flush has the error
			}
			return fail(wentWrong, table.Flush())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return c
}
