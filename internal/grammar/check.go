package grammar

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"vitess.io/vitess/go/vt/sqlparser"
)

// A Report is what a log held.
type Report struct {
	// Statements is how many there were, and Distinct how many that differ in more than their literals. Neither
	// counts CREATE DATABASE and DROP DATABASE, which are the tests' own.
	Statements, Distinct int
	// Refused are the distinct ones that MySQL 8 would not accept.
	Refused []Refusal
}

// A Refusal is one statement, as it was first sent, and why it was refused.
type Refusal struct {
	Statement string
	Err       error
}

// CheckLog checks each statement of a MariaDB general log. The error is one of reading.
func CheckLog(log io.Reader) (Report, error) {
	c, err := newChecker()
	if err != nil {
		return Report{}, err
	}
	var report Report
	seen := map[string]bool{}
	err = readLog(log, func(text string) {
		kind := shape(text)
		if isDatabase(kind) {
			return
		}
		report.Statements++
		if seen[kind] {
			return
		}
		seen[kind] = true
		report.Distinct++
		if err := c.check(text); err != nil {
			report.Refused = append(report.Refused, Refusal{text, err})
		}
	})
	return report, err
}

// isDatabase reports whether a statement makes or drops a database. The tests give each test one; the product uses the
// one that it is given. They would pass, but count as many statements as there are tests.
func isDatabase(shape string) bool {
	s := strings.ToUpper(shape)
	return strings.HasPrefix(s, "CREATE DATABASE ") || strings.HasPrefix(s, "DROP DATABASE ")
}

// A checker is not safe for concurrent use.
type checker struct {
	parser                         *sqlparser.Parser
	reserved, functions, variables map[string]bool
	executable, collation, numbers *regexp.Regexp
}

func newChecker() (*checker, error) {
	parser, err := sqlparser.New(sqlparser.Options{MySQLServerVersion: "8.0.40"})
	if err != nil {
		return nil, fmt.Errorf("make the parser: %w", err)
	}
	return &checker{
		parser:     parser,
		reserved:   reserved(),
		functions:  mariaFunctions(),
		variables:  mariaVariables(),
		executable: regexp.MustCompile(`/\*M?!`),
		collation:  regexp.MustCompile(`(?i)\b\w+_(?:uca1400|nopad)\w*`),
		numbers:    regexp.MustCompile(`(?i)^seq_\d+_to_\d+`),
	}, nil
}

// check returns why MySQL 8 would not accept the statement, or nil.
func (c *checker) check(text string) error {
	bare := shape(text)
	if c.executable.MatchString(bare) {
		return errors.New("a comment that is code on some servers only")
	}
	if name := c.collation.FindString(bare); name != "" {
		return fmt.Errorf("collation %s is MariaDB's", name)
	}
	// The grammar reads DO as anything up to the end.
	if verb, rest, ok := strings.Cut(text, " "); ok && strings.EqualFold(verb, "DO") {
		text = "SELECT " + rest
	}
	statement, err := c.parser.ParseStrictDDL(text)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	if !understood(statement) {
		return fmt.Errorf("%T is not parsed to its end", statement)
	}
	return sqlparser.Walk(c.visit, statement)
}

// understood reports whether a statement is of a kind that the grammar reads in full. Others it skips to their end,
// or they are its own.
func understood(statement sqlparser.Statement) bool {
	switch statement.(type) {
	case *sqlparser.Select, *sqlparser.Union, *sqlparser.Insert, *sqlparser.Update, *sqlparser.Delete,
		*sqlparser.CreateTable, *sqlparser.AlterTable, *sqlparser.DropTable, *sqlparser.RenameTable, *sqlparser.TruncateTable,
		*sqlparser.CreateView, *sqlparser.AlterView, *sqlparser.DropView, *sqlparser.CreateDatabase, *sqlparser.DropDatabase,
		*sqlparser.Begin, *sqlparser.Commit, *sqlparser.Rollback,
		*sqlparser.Savepoint, *sqlparser.SRollback, *sqlparser.Release,
		*sqlparser.Set, *sqlparser.Use, *sqlparser.Show, *sqlparser.Analyze, *sqlparser.ExplainStmt, *sqlparser.ExplainTab,
		*sqlparser.Kill, *sqlparser.Flush, *sqlparser.LockTables, *sqlparser.UnlockTables:
		return true
	}
	return false
}

// visit refuses what parses and still is not MySQL 8.
func (c *checker) visit(node sqlparser.SQLNode) (kontinue bool, err error) {
	switch n := node.(type) {
	case *sqlparser.Nextval:
		return false, errors.New("sequences are MariaDB's")
	case *sqlparser.GroupConcatExpr:
		if n.Limit != nil {
			return false, errors.New("GROUP_CONCAT with LIMIT is MariaDB's")
		}
	case *sqlparser.TableSpec:
		for _, option := range n.Options {
			if strings.EqualFold(option.Name, "engine") && !strings.EqualFold(option.String, "InnoDB") {
				return false, fmt.Errorf("engine %s is not InnoDB", option.String)
			}
		}
	case *sqlparser.Variable:
		if c.variables[n.Name.Lowered()] {
			return false, fmt.Errorf("variable %s is MariaDB's", n.Name.Lowered())
		}
		return false, nil
	case *sqlparser.FuncExpr:
		if c.functions[n.Name.Lowered()] {
			return false, fmt.Errorf("function %s is MariaDB's", n.Name.Lowered())
		}
		// A function may be called as a reserved word is: IF, LEFT, REPLACE.
		for _, argument := range n.Exprs {
			if err := sqlparser.Walk(c.visit, argument); err != nil {
				return false, err //nolint:wrapcheck // ours, from further down
			}
		}
		return false, nil
	case *sqlparser.CurTimeFuncExpr:
		return false, nil // its name is a keyword: UTC_TIMESTAMP, CURRENT_DATE
	case sqlparser.IdentifierCI:
		return true, c.name(n.String())
	case sqlparser.IdentifierCS:
		return true, c.name(n.String())
	}
	return true, nil
}

func (c *checker) name(name string) error {
	if c.reserved[strings.ToLower(name)] {
		return fmt.Errorf("%s is a reserved word", name)
	}
	if c.numbers.MatchString(name) {
		return fmt.Errorf("%s is a table of MariaDB's sequence engine", name)
	}
	return nil
}
