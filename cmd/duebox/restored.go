package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/duebox/duebox/outbox"
)

func newRestored() *cobra.Command {
	return &cobra.Command{
		Use:   "restored",
		Short: "Tell the ledger that its database was set back: restored from a backup, or copied",
		Long: `Tell the ledger that its database was set back: restored from a backup, taken over by a replica that
lacked the last commits, or copied. It gets another id, so that deliveries of the time that is gone run
nothing, and what was published is published again. Stop all processes before.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			id, err := restored(c)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "the ledger's id is %s from now on; what was published will be published again\n", id)
			return fail(wentWrong, err)
		},
	}
}

func restored(c *cobra.Command) (id string, err error) {
	cfg, err := load("MYSQL_DSN")
	if err != nil {
		return "", err
	}
	db, closeDB, err := openDatabase(c, cfg, false)
	if err != nil {
		return "", fail(wentWrong, err)
	}
	defer closeDB()
	pool, err := db.DB()
	if err != nil {
		return "", fail(wentWrong, err)
	}
	if err := askTables(c.Context(), pool); err != nil {
		return "", fail(wentWrong, err)
	}
	store, err := outbox.NewStore(db, outbox.StoreConfig{})
	if err != nil {
		return "", fail(wentWrong, err)
	}
	id, err = store.Restored(c.Context())
	return id, fail(wentWrong, err)
}
