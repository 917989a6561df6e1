package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newMigrate() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := load("MYSQL_DSN")
			if err != nil {
				return err
			}
			_, closeDB, err := openDatabase(c, cfg, true)
			if err != nil {
				return fail(wentWrong, err)
			}
			closeDB()
			_, err = fmt.Fprintln(c.OutOrStdout(), "schema is up to date")
			return fail(wentWrong, err)
		},
	}
}
