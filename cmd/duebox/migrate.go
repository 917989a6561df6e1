package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"gorm.io/gorm"

	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/outbox"
)

func newMigrate() *cobra.Command {
	up := func(c *cobra.Command, _ []string) error { return withDatabase(c, migrateUp) }
	root := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date, show it, or take a migration back",
		Long:  "Bring the database's schema up to date, which is also what \"up\" does; show what is applied; or take the newest migration back.",
		Args:  cobra.NoArgs,
		RunE:  up,
	}
	var asJSON, yes bool
	status := &cobra.Command{
		Use:   "status",
		Short: "List the migrations and when they were applied; exits with 1 if some are pending",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withDatabase(c, func(c *cobra.Command, db *gorm.DB) error { return migrateStatus(c, db, asJSON) })
		},
	}
	status.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	down := &cobra.Command{
		Use:       "down {outbox|orders}",
		Short:     "Take back the newest migration of a set, with all that its table or column holds; refuses while a worker runs",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"outbox", "orders"},
		RunE: func(c *cobra.Command, args []string) error {
			if !yes {
				return fail(cannotBegin, errors.New("this deletes what the migration has made, and the rows in it: stop all processes, make a backup, and say --yes"))
			}
			return withDatabase(c, func(c *cobra.Command, db *gorm.DB) error { return migrateDown(c, db, args[0]) })
		},
	}
	down.Flags().BoolVar(&yes, "yes", false, "do it")
	root.AddCommand(&cobra.Command{Use: "up", Short: "Bring the database's schema up to date", Args: cobra.NoArgs, RunE: up}, status, down)
	return root
}

// withDatabase runs a command on the database as it is.
func withDatabase(c *cobra.Command, run func(c *cobra.Command, db *gorm.DB) error) error {
	cfg, err := load("MYSQL_DSN")
	if err != nil {
		return err
	}
	db, closeDB, err := openDatabase(c, cfg, false)
	if err != nil {
		return fail(wentWrong, err)
	}
	defer closeDB()
	return fail(wentWrong, run(c, db))
}

func migrateUp(c *cobra.Command, db *gorm.DB) error {
	ctx, cancel := context.WithTimeout(c.Context(), migrateLimit)
	defer cancel()
	before, err := database.Status(ctx, db, sets()...)
	if err != nil {
		return err
	}
	if err := database.Migrate(ctx, db, sets()...); err != nil {
		return err
	}
	text := "schema is up to date"
	if n, _ := pendingOf(before); n > 0 {
		text = fmt.Sprintf("migrations applied: %d; %s", n, text)
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), text)
	return err
}

func migrateDown(c *cobra.Command, db *gorm.DB, name string) error {
	ctx, cancel := context.WithTimeout(c.Context(), migrateLimit)
	defer cancel()
	store, err := outbox.NewStore(db, outbox.StoreConfig{})
	if err != nil {
		return err
	}
	if err := store.Unused(ctx); err != nil {
		return err
	}
	for _, set := range sets() {
		if set.Table != "goose_"+name {
			continue
		}
		file, err := database.Down(ctx, db, set)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), "taken back: "+file)
		return err
	}
	return fmt.Errorf("there is no set %s", name)
}

type migrationJSON struct {
	Set     string     `json:"set"`
	Version int64      `json:"version"`
	File    string     `json:"file"`
	Applied *time.Time `json:"applied_at"`
}

func migrateStatus(c *cobra.Command, db *gorm.DB, asJSON bool) error {
	ctx, cancel := context.WithTimeout(c.Context(), openLimit)
	defer cancel()
	all, err := database.Status(ctx, db, sets()...)
	if err != nil {
		return err
	}
	if err := printMigrations(c.OutOrStdout(), all, asJSON); err != nil {
		return err
	}
	if n, _ := pendingOf(all); n > 0 {
		return fmt.Errorf("migrations pending: %d", n)
	}
	return nil
}

// pendingOf counts what the database lacks, and what it has that this build does not know.
func pendingOf(all []database.Migration) (pending, unknown int) {
	for _, m := range all {
		if m.Applied.IsZero() {
			pending++
		}
		if m.File == "" {
			unknown++
		}
	}
	return pending, unknown
}

// setName is how a migration's set is called here; the table that its migrations are noted in has the name of who made it besides.
func setName(m database.Migration) string { return strings.TrimPrefix(m.Set, "goose_") }

func printMigrations(w io.Writer, all []database.Migration, asJSON bool) error {
	if asJSON {
		list := make([]migrationJSON, len(all))
		for i, m := range all {
			list[i] = migrationJSON{Set: setName(m), Version: m.Version, File: m.File}
			if !m.Applied.IsZero() {
				list[i].Applied = &m.Applied
			}
		}
		return json.NewEncoder(w).Encode(list)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range all {
		state, file := "pending", m.File
		if !m.Applied.IsZero() {
			state = m.Applied.UTC().Format(time.RFC3339)
		}
		if file == "" {
			file = fmt.Sprintf("%d, which this build does not know", m.Version)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", setName(m), file, state) // Flush has the error
	}
	return table.Flush()
}
