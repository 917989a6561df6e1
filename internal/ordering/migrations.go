package ordering

import "embed"

// Migrations holds the tables of orders and stock as goose migrations (migrations/*.sql). Each file is one statement, for
// MySQL 8.0+ and MariaDB 10.6+, that may run twice without harm.
//
//go:embed migrations/*.sql
var Migrations embed.FS
