package outbox

import "embed"

// Migrations holds the ledger's tables as goose migrations (migrations/*.sql), for `duebox migrate` and for importers'
// own migrators. Each file is one statement, for MySQL 8.0+ and MariaDB 10.6+, that may run twice without harm, because
// DDL is not transactional there.
//
//go:embed migrations/*.sql
var Migrations embed.FS
