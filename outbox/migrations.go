package outbox

import "embed"

// Migrations holds the ledger's tables as goose migrations (migrations/*.sql), for `duebox migrate` and for importers' own
// migrators. The Up part of each file is one statement, for MySQL 8.0+ and MariaDB 10.6+, that may run twice without harm,
// because DDL is not transactional there; the Down part drops what it made.
//
// A goose provider wants fs.Sub(Migrations, "migrations"). Their versions are times, far above hand-numbered ones; give them a
// version table of their own (goose.WithTableName) all the same, so that neither set can be taken for the other.
//
//go:embed migrations/*.sql
var Migrations embed.FS
