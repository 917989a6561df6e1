package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"

	"github.com/duebox/duebox/config"
	"github.com/duebox/duebox/internal/certs"
)

// listenerTLS is what the listeners of api and worker speak, nil for plain HTTP.
func listenerTLS(c *cobra.Command, cfg config.Config, log *slog.Logger) (*tls.Config, error) {
	if cfg.TLSCertFile == "" {
		return nil, nil //nolint:nilnil // none is no error
	}
	return certs.Server(certs.File{Setting: "TLS_CERT_FILE", Path: cfg.TLSCertFile}, certs.File{Setting: "TLS_KEY_FILE", Path: cfg.TLSKeyFile},
		certs.File{Setting: "TLS_CLIENT_CA_FILE", Path: cfg.TLSClientCAFile}, stale(c, log))
}

// databaseTLS is how connections to the database are encrypted, nil for what the DSN says.
func databaseTLS(c *cobra.Command, cfg config.Config, log *slog.Logger) (*tls.Config, error) {
	if !cfg.MySQLTLS() {
		return nil, nil //nolint:nilnil // none is no error
	}
	dsn, err := mysql.ParseDSN(cfg.MySQLDSN.Reveal())
	if err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	host, _, err := net.SplitHostPort(dsn.Addr)
	if err != nil || dsn.Net == "unix" {
		return nil, errors.New("MYSQL_DSN: want tcp(host:port), whose host the certificate has to name")
	}
	return certs.Client(host, certs.File{Setting: "MYSQL_TLS_CA_FILE", Path: cfg.MySQLCAFile},
		certs.File{Setting: "MYSQL_TLS_CERT_FILE", Path: cfg.MySQLCertFile}, certs.File{Setting: "MYSQL_TLS_KEY_FILE", Path: cfg.MySQLKeyFile}, stale(c, log))
}

// brokerTLS is how connections to the broker are encrypted where its URL says that they are, nil for the system's certificates.
func brokerTLS(c *cobra.Command, cfg config.Config, log *slog.Logger) (*tls.Config, error) {
	if !cfg.AMQPTLS() {
		return nil, nil //nolint:nilnil // none is no error
	}
	u, err := url.Parse(cfg.AMQPURL.Reveal())
	if err != nil {
		return nil, errors.New("AMQP_URL: is not a URL") // the error would repeat it
	}
	return certs.Client(u.Hostname(), certs.File{Setting: "AMQP_TLS_CA_FILE", Path: cfg.AMQPCAFile},
		certs.File{Setting: "AMQP_TLS_CERT_FILE", Path: cfg.AMQPCertFile}, certs.File{Setting: "AMQP_TLS_KEY_FILE", Path: cfg.AMQPKeyFile}, stale(c, log))
}

// stale logs that files which have changed cannot be used.
func stale(c *cobra.Command, log *slog.Logger) func(error) {
	ctx := c.Context()
	return func(err error) {
		log.LogAttrs(ctx, slog.LevelError, "a changed certificate cannot be used, the one before it stays", slog.Any("error", err))
	}
}
