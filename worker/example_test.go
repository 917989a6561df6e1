package worker_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/duebox/duebox/outbox"
	"github.com/duebox/duebox/worker"
)

// A worker is all that a program runs beside its own code: it hands messages over, brings them to their effects, looks for what was
// lost, and answers probes and metrics. The tables are those of outbox.Migrations.
func ExampleNew() {
	// READ COMMITTED, so that an effect that waited for a row goes on with what was committed meanwhile. MariaDB before 11.1 calls it tx_isolation.
	const session = "?transaction_isolation=%27READ-COMMITTED%27"
	db, err := gorm.Open(mysql.Open(os.Getenv("MYSQL_DSN")+session), &gorm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	w, err := worker.New(db, os.Getenv("AMQP_URL"), map[string]worker.Effect{
		"cart.remind": func(ctx context.Context, tx *gorm.DB, d outbox.Delivery) error {
			return tx.WithContext(ctx).Exec("UPDATE carts SET reminded_at = UTC_TIMESTAMP(6) WHERE id = ?", d.Key).Error
		},
	}, worker.Config{
		Namespace: "shop",
		BatchEffects: map[string]worker.BatchEffect{
			"cart.expire": func(ctx context.Context, tx *gorm.DB, ds []outbox.Delivery) error { // one transaction for all that are due
				ids := make([]string, len(ds))
				for i, d := range ds {
					ids[i] = d.Key
				}
				return tx.WithContext(ctx).Exec("DELETE FROM carts WHERE id IN ?", ids).Error
			},
		},
	})
	if err != nil {
		log.Fatal(err) // a setting is wrong
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := w.Run(ctx); err != nil { // drained, or not within Config.DrainTimeout
		log.Print(err)
	}
}
