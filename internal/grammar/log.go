// Package grammar checks that SQL which MariaDB has accepted is SQL that MySQL 8 accepts as well.
//
// It reads the general log of a MariaDB server and parses each distinct statement with a MySQL 8 grammar. What
// that grammar lets through although MySQL 8 has no such thing, and its reserved words, are checked here. It
// knows the grammar and a list of names, and not the schema: a statement that passes may still name a column that
// is not there.
package grammar

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// readLog calls statement with the text of each statement in a general log of MariaDB, in its order.
//
// An entry begins with a time or, within the same second, two tabs; then come the connection, the command and
// its text, which may go on over many lines. Prepare and Execute are both reported: the second has the values in it.
func readLog(r io.Reader, statement func(text string)) error {
	entry := regexp.MustCompile(`^(?:\d{6} [ \d]\d:\d\d:\d\d)?\t+ *\d+ ([A-Z][A-Za-z]*(?: [A-Za-z]+)*)\t`)
	var (
		text   strings.Builder
		inside bool
	)
	flush := func() {
		if inside {
			statement(strings.TrimSpace(text.String()))
		}
		text.Reset()
	}
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return fmt.Errorf("read the general log: %w", err)
		}
		var match []string
		if len(line) > 0 && (line[0] == '\t' || isDigit(line[0])) {
			match = entry.FindStringSubmatch(line)
		}
		if match != nil {
			flush()
			inside = match[1] == "Query" || match[1] == "Prepare" || match[1] == "Execute"
			line = line[len(match[0]):]
		}
		if inside {
			text.WriteString(line)
		}
		if last {
			flush()
			return nil
		}
	}
}
