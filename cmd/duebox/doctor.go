package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"gorm.io/gorm"

	"github.com/duebox/duebox/config"
	"github.com/duebox/duebox/internal/database"
	"github.com/duebox/duebox/internal/doctor"
	"github.com/duebox/duebox/model"
	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/outbox/rabbitmq"
)

// doctorLimit bounds each half of what the doctor looks at.
const doctorLimit = 30 * time.Second

func newDoctor() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look at the database, the broker and the settings, and say what to do about what is not right",
		Long: `Look at the database, the broker and the settings, and say what to do about what is not right.

Exit codes: 0 all is well or only to be warned of, 1 something fails, 2 the settings are wrong.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := load("MYSQL_DSN")
			if err != nil {
				return err
			}
			all := append(examineSettings(cfg), examineDatabase(c, cfg)...)
			all = append(all, examineBroker(c, cfg)...)
			if err := printFindings(c.OutOrStdout(), all, asJSON); err != nil {
				return fail(wentWrong, err)
			}
			if doctor.Worst(all) == doctor.Fail {
				return fail(wentWrong, errors.New("something fails, see above"))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return c
}

// examineSettings finds what is allowed and yet unwise.
func examineSettings(cfg config.Config) (found []doctor.Finding) {
	const short = 16
	for _, token := range []struct {
		name   string
		secret config.Secret
	}{{"ADMIN_TOKEN", cfg.AdminToken}, {"API_TOKEN", cfg.APIToken}} {
		if token.secret.IsSet() && len(token.secret.Reveal()) < short {
			found = append(found, doctor.Finding{
				Check: token.name, State: doctor.Warn, Found: fmt.Sprintf("shorter than %d characters", short),
				Advice: "take a random one, such as that of: openssl rand -hex 32",
			})
		}
	}
	if cfg.APIToken.IsSet() && !cfg.AdminToken.IsSet() {
		found = append(found, doctor.Finding{
			Check: "ADMIN_TOKEN", State: doctor.Warn, Found: "not set, and API_TOKEN is: /v1/admin and the operator's page are shut",
			Advice: "set one, such as that of: openssl rand -hex 32",
		})
	}
	return found
}

func examineDatabase(c *cobra.Command, cfg config.Config) []doctor.Finding {
	cannot := func(err error, advice string) doctor.Finding {
		return doctor.Finding{Check: "database", State: doctor.Fail, Found: err.Error(), Advice: advice}
	}
	db, closeDB, err := openDatabase(c, cfg, false)
	if err != nil {
		return []doctor.Finding{cannot(err, "make it answer at MYSQL_DSN with its user and password, then look again")}
	}
	defer closeDB()
	pool, err := db.DB()
	if err != nil {
		return []doctor.Finding{cannot(err, "report this as a fault")}
	}
	ctx, cancel := context.WithTimeout(c.Context(), doctorLimit)
	defer cancel()
	found := doctor.Database(ctx, pool, doctor.Needs{Connections: connections(topics * cfg.Workers), Migrates: cfg.MigrateOnStart})
	schema := doctor.Finding{Check: "schema", State: doctor.OK, Found: "up to date"}
	all, err := database.Status(ctx, db, sets()...)
	switch pending, unknown := pendingOf(all); {
	case err != nil:
		schema = doctor.Finding{Check: "schema", State: doctor.Fail, Found: err.Error(), Advice: "let the user read all tables of the database"}
	case pending > 0:
		schema = doctor.Finding{Check: "schema", State: doctor.Fail, Found: fmt.Sprintf("%d migrations are pending", pending), Advice: "run duebox migrate"}
	case unknown > 0:
		schema = doctor.Finding{
			Check: "schema", State: doctor.Warn, Found: fmt.Sprintf("%d migrations are of a later version of duebox", unknown),
			Advice: "use the version that made them, or a later one",
		}
	}
	found = append(found, schema)
	if schema.State == doctor.OK {
		found = append(found, examineLedger(ctx, db, cfg))
	}
	return found
}

// examineLedger asks what the operator's page says above all else.
func examineLedger(ctx context.Context, db *gorm.DB, cfg config.Config) doctor.Finding {
	const check = "messages"
	store, err := outbox.NewStore(db, outbox.StoreConfig{Retention: cfg.Retention, MaxAttempts: cfg.MaxAttempts})
	if err != nil {
		return doctor.Finding{Check: check, State: doctor.Fail, Found: err.Error(), Advice: "report this as a fault"}
	}
	v, err := store.Operator(outbox.OperatorConfig{Grace: cfg.Grace}).Overview(ctx)
	switch {
	case err != nil:
		return doctor.Finding{Check: check, State: doctor.Fail, Found: err.Error(), Advice: "see whether the database is overloaded, or lacks an index"}
	case !v.Verdict.OK:
		return doctor.Finding{Check: check, State: doctor.Warn, Found: v.Verdict.Text, Advice: "see duebox outbox stats, and the operator's page"}
	}
	return doctor.Finding{Check: check, State: doctor.OK, Found: v.Verdict.Text}
}

func examineBroker(c *cobra.Command, cfg config.Config) []doctor.Finding {
	if !cfg.AMQPURL.IsSet() {
		return []doctor.Finding{{Check: "broker", State: doctor.Warn, Found: "AMQP_URL is not set", Advice: "set it to have the broker looked at; only the API does without"}}
	}
	cannot := func(err error) []doctor.Finding {
		return []doctor.Finding{{Check: "broker", State: doctor.Fail, Found: err.Error(), Advice: "correct the setting"}}
	}
	log, err := newLog(c.ErrOrStderr(), "warn")
	if err != nil {
		return cannot(err)
	}
	encrypt, err := brokerTLS(c, cfg, log)
	if err != nil {
		return cannot(err)
	}
	broker, err := rabbitmq.NewBroker(cfg.AMQPURL.Reveal(), rabbitmq.Config{Namespace: cfg.Namespace, TLS: encrypt})
	if err != nil {
		return cannot(err)
	}
	ctx, cancel := context.WithTimeout(c.Context(), doctorLimit)
	defer cancel()
	return doctor.Broker(ctx, broker, cfg.Namespace, rabbitmq.Strategy(cfg.DelayStrategy), []string{model.TopicExpire, model.TopicRemind})
}

func printFindings(w io.Writer, all []doctor.Finding, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(all)
	}
	for _, f := range all {
		if _, err := fmt.Fprintf(w, "%-4s  %s: %s\n", f.State, f.Check, f.Found); err != nil {
			return err
		}
		if f.Advice != "" {
			if _, err := fmt.Fprintf(w, "      %s\n", f.Advice); err != nil {
				return err
			}
		}
	}
	return nil
}
