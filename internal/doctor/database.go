package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Needs is what is asked of a database.
type Needs struct {
	Connections int  // that one process may open
	Migrates    bool // api and worker bring the schema up to date themselves
}

// Database looks at the server behind pool, whose sessions are set up as those of duebox. What can be looked at is, also when something
// before it has failed.
func Database(ctx context.Context, pool *sql.DB, needs Needs) []Finding {
	var version string
	if err := pool.QueryRowContext(ctx, `SELECT VERSION()`).Scan(&version); err != nil {
		return []Finding{fail("database", err.Error(), "make it answer, then look again")}
	}
	found, err := variablesOf(ctx, pool)
	if err != nil {
		return []Finding{versionFinding(version), fail("database settings", err.Error(), "let the user read variables of the server")}
	}
	return []Finding{
		versionFinding(version),
		zoneFinding(found),
		isolationFinding(found),
		charsetFinding(found),
		packetFinding(found),
		connectionsFinding(found, needs.Connections),
		privilegesFinding(ctx, pool, needs.Migrates),
		clockFinding(ctx, pool),
	}
}

// variables of a session are its settings, by name. MariaDB and MySQL have different ones.
type variables map[string]string

func variablesOf(ctx context.Context, pool *sql.DB) (variables, error) {
	rows, err := pool.QueryContext(ctx, `
		SHOW SESSION VARIABLES WHERE variable_name IN ('transaction_isolation', 'tx_isolation', 'time_zone', 'system_time_zone',
			'character_set_connection', 'character_set_client', 'max_allowed_packet', 'max_connections')`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	found := variables{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		found[name] = value
	}
	return found, rows.Err()
}

func versionFinding(version string) Finding {
	const check = "database version"
	maria := strings.Contains(strings.ToLower(version), "mariadb")
	switch {
	case maria && !atLeast(version, 10, 6):
		return fail(check, version, "use MariaDB 10.6 or later: SKIP LOCKED is missing")
	case !maria && !atLeast(version, 8, 0):
		return fail(check, version, "use MySQL 8.0 or later: SKIP LOCKED is missing")
	}
	return ok(check, version)
}

func zoneFinding(v variables) Finding {
	return ok("time zone", v["time_zone"]+" ("+v["system_time_zone"]+"); times are read and written as UTC whatever it is")
}

// The name of the variable differs between MySQL and MariaDB.
func isolationFinding(v variables) Finding {
	const check = "isolation"
	level := v["transaction_isolation"]
	if level == "" {
		level = v["tx_isolation"]
	}
	if level == "READ-COMMITTED" {
		return ok(check, level)
	}
	return warn(check, level, "run transactions READ COMMITTED: others lock gaps between rows, and writers wait for each other")
}

func charsetFinding(v variables) Finding {
	const check = "character set"
	found := v["character_set_connection"]
	if found != "utf8mb4" || v["character_set_client"] != "utf8mb4" {
		return fail(check, found, "take the charset out of MYSQL_DSN, and skip-character-set-client-handshake out of the server's settings")
	}
	return ok(check, found)
}

func packetFinding(v variables) Finding {
	const check, mega = "packet size", 1 << 20
	n, _ := strconv.ParseInt(v["max_allowed_packet"], 10, 64)
	found := fmt.Sprintf("max_allowed_packet is %d KiB", n>>10)
	switch {
	case n < mega:
		return fail(check, found, "set max_allowed_packet to 16M: a message of 256 KiB does not fit with what is around it")
	case n < 4*mega:
		return warn(check, found, "set max_allowed_packet to 16M or more: it bounds what an effect may write at once")
	}
	return ok(check, found)
}

func connectionsFinding(v variables, each int) Finding {
	const check = "connections"
	n, _ := strconv.Atoi(v["max_connections"])
	found := fmt.Sprintf("max_connections is %d, and each process may open %d", n, each)
	if n < 2*each {
		return warn(check, found, "set max_connections to what all processes may open together, and some for yourself")
	}
	return ok(check, found)
}

// privilegesFinding reads what the user was granted on the whole server and on this database, by roles too as far as they can be seen.
func privilegesFinding(ctx context.Context, pool *sql.DB, migrates bool) Finding {
	const check = "privileges"
	granted, roles, err := grantsOf(ctx, pool)
	if err != nil {
		return warn(check, "SHOW GRANTS says: "+err.Error(), "look at the user's privileges yourself")
	}
	lacks := func(names ...string) (missing []string) {
		for _, name := range names {
			if !granted[name] && !granted["ALL PRIVILEGES"] {
				missing = append(missing, name)
			}
		}
		return missing
	}
	missing := lacks("SELECT", "INSERT", "UPDATE", "DELETE")
	found := strings.Join(slices.Sorted(maps.Keys(granted)), ", ")
	switch {
	case len(missing) > 0 && roles:
		return warn(check, found, "the user has roles, whose privileges are not shown; make sure that it has "+strings.Join(missing, ", "))
	case len(missing) > 0:
		return fail(check, "lacks "+strings.Join(missing, ", "), "GRANT SELECT, INSERT, UPDATE, DELETE on the database to the user of MYSQL_DSN")
	}
	if missing = lacks("CREATE", "ALTER", "INDEX", "DROP"); migrates && len(missing) > 0 && !roles {
		return warn(check, found, "set MIGRATE_ON_START=false and run duebox migrate with a user who has "+strings.Join(missing, ", ")+" too, or grant them")
	}
	return ok(check, found)
}

func grantsOf(ctx context.Context, pool *sql.DB) (granted map[string]bool, roles bool, err error) {
	var database string
	if err := pool.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&database); err != nil {
		return nil, false, err
	}
	rows, err := pool.QueryContext(ctx, `SHOW GRANTS`)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = rows.Close() }()
	// Of grants on databases only those on the most specific name count: what is granted by a pattern is hidden by what is granted by name.
	everywhere, byPattern, byName := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, false, err
		}
		names, where, isPrivileges := parseGrant(line)
		roles = roles || !isPrivileges
		into := byPattern
		switch {
		case !isPrivileges || !covers(where, database):
			continue
		case where == "*":
			into = everywhere
		case strings.ReplaceAll(where, `\`, "") == "`"+database+"`":
			into = byName
		}
		for _, name := range names {
			into[name] = true
		}
	}
	granted = byPattern
	if len(byName) > 0 {
		granted = byName
	}
	maps.Copy(granted, everywhere)
	delete(granted, "USAGE")
	return granted, roles, rows.Err()
}

// parseGrant reads GRANT privileges ON where TO user. A role is granted without ON.
func parseGrant(line string) (names []string, where string, isPrivileges bool) {
	m := regexp.MustCompile("^GRANT (.+?) ON (`(?:[^`]|``)*`|\\*)\\.\\* TO ").FindStringSubmatch(line)
	if m == nil {
		return nil, "", strings.Contains(line, " ON ") // of a table or a routine: nothing that counts here
	}
	return strings.Split(m[1], ", "), m[2], true
}

// covers says whether a grant on where holds for a database: where may have the wildcards of LIKE.
func covers(where, database string) bool {
	if where == "*" {
		return true
	}
	pattern := strings.ReplaceAll(strings.Trim(where, "`"), "``", "`")
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			i++
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		case c == '%':
			b.WriteString(".*")
		case c == '_':
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	matched, err := regexp.MatchString("^"+b.String()+"$", database)
	return err == nil && matched
}

// clockFinding compares the database's clock with this machine's, in the middle of asking.
func clockFinding(ctx context.Context, pool *sql.DB) Finding {
	const check, layout, large = "clock", "2006-01-02 15:04:05.000000", time.Second
	var text string
	began := time.Now()
	if err := pool.QueryRowContext(ctx, `SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)`).Scan(&text); err != nil {
		return fail(check, err.Error(), "make the database answer, then look again")
	}
	took := time.Since(began)
	at, err := time.Parse(layout, text)
	if err != nil {
		return fail(check, "the database says "+text, "report this as a fault")
	}
	ahead := at.Sub(began.Add(took / 2)).Round(time.Millisecond)
	found := fmt.Sprintf("the database is %v ahead of this machine, give or take %v", ahead, (took / 2).Round(time.Millisecond))
	if ahead.Abs() > large+took {
		return warn(check, found, "have both follow NTP: due times are the database's, and Delay of a message counts from its clock")
	}
	return ok(check, found)
}

// numbers are the first two of a version.
func numbers(version string) (major, minor int, read bool) {
	n, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return major, minor, err == nil && n == 2
}
