package demo

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duebox/duebox/client"
)

// readOrders plans the orders of a CSV file with the columns
//
//	order         a number of its own for each row
//	placed_at     when it was placed, RFC 3339: the sequence in which orders are placed
//	paid_after_s  whole seconds until it was paid; empty: never
//	items         SKUxQUANTITY@PRICE with up to two decimals, separated by blanks; empty: one unit of UNLISTED
//
// of which at most n are taken, all if n is 0. An error names the line and the column.
func readOrders(path string, n int, l limits) ([]planned, error) {
	file, err := os.Open(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, fmt.Errorf("orders file: %w", err)
	}
	defer func() { _ = file.Close() }()
	plan, err := parseOrders(file, n, l)
	if err != nil {
		return nil, fmt.Errorf("orders file %s: %w", path, err)
	}
	return plan, nil
}

// orderColumns is the first line of an orders file.
const orderColumns = "order,placed_at,paid_after_s,items"

// unlisted is the product of an order that lists none.
const unlisted = "UNLISTED"

func parseOrders(r io.Reader, n int, l limits) ([]planned, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = -1 // counted below, for an error that says more
	header, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty; the first line must be " + orderColumns)
	}
	if err != nil {
		return nil, err
	}
	if got := strings.TrimPrefix(strings.Join(header, ","), "\ufeff"); got != orderColumns {
		return nil, fmt.Errorf("line 1: is %.80q, want %s", got, orderColumns)
	}
	type row struct {
		at time.Time
		planned
	}
	var rows []row
	seen := map[string]int{}
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err // names line and column
		}
		line, _ := in.FieldPos(0)
		if len(fields) != 4 {
			return nil, fmt.Errorf("line %d: has %d columns, want the 4 of %s", line, len(fields), orderColumns)
		}
		wrong := func(column int, want string) error {
			_, at := in.FieldPos(column)
			return fmt.Errorf("line %d, column %d (%s): is %.80q, want %s",
				line, at, strings.Split(orderColumns, ",")[column], fields[column], want)
		}
		number, err := strconv.ParseUint(fields[0], 10, 63)
		if err != nil {
			return nil, wrong(0, "a whole number")
		}
		name := fmt.Sprintf("file-%d", number)
		if first := seen[name]; first > 0 {
			return nil, wrong(0, fmt.Sprintf("a number of its own; line %d has it too", first))
		}
		seen[name] = line
		placed, err := time.Parse(time.RFC3339, fields[1])
		if err != nil {
			return nil, wrong(1, "a time such as 2017-11-24T08:30:00Z")
		}
		p := planned{name: name, kind: "normal", user: fmt.Sprintf("buyer-%d", number), payAfter: -1}
		if fields[2] != "" {
			seconds, err := strconv.ParseUint(fields[2], 10, 32)
			if err != nil {
				return nil, wrong(2, "whole seconds from 0 to 4294967295, or nothing for never")
			}
			p.payAfter, p.late = l.compress(p.kind, time.Duration(seconds)*time.Second)
		}
		if p.items, err = parseItems(fields[3]); err != nil {
			return nil, wrong(3, err.Error())
		}
		rows = append(rows, row{placed, p})
	}
	if len(rows) == 0 {
		return nil, errors.New("it has no orders")
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.at.Compare(b.at) })
	if n > 0 && n < len(rows) {
		rows = rows[:n]
	}
	plan := make([]planned, len(rows))
	for i, row := range rows {
		plan[i] = row.planned
	}
	return plan, nil
}

var (
	errItem     = errors.New("SKUxQUANTITY@PRICE, separated by blanks, with a quantity of 1 to 10000 and a price such as 38.50")
	errItems    = errors.New("at most 100 items")
	errItemOnce = errors.New("each SKU once")
)

func parseItems(s string) ([]client.Item, error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return []client.Item{{SKU: unlisted, Quantity: 1, Price: 100}}, nil
	}
	if len(words) > 100 {
		return nil, errItems
	}
	items := make([]client.Item, 0, len(words))
	for _, word := range words {
		goods, price, ok := cutLast(word, "@")
		sku, quantity, ok2 := cutLast(goods, "x")
		if !ok || !ok2 || !isID(sku) {
			return nil, errItem
		}
		units, err := strconv.ParseInt(quantity, 10, 64)
		if err != nil || units < 1 || units > 10_000 {
			return nil, errItem
		}
		minor, ok := parsePrice(price)
		if !ok {
			return nil, errItem
		}
		if slices.ContainsFunc(items, func(it client.Item) bool { return it.SKU == sku }) {
			return nil, errItemOnce
		}
		items = append(items, client.Item{SKU: sku, Quantity: units, Price: minor})
	}
	return items, nil
}

// parsePrice reads an amount with up to two decimals, in minor units, up to ten million.
func parsePrice(s string) (int64, bool) {
	whole, decimals, dotted := strings.Cut(s, ".")
	if dotted && (decimals == "" || len(decimals) > 2) {
		return 0, false
	}
	minor, err := strconv.ParseUint(whole+(decimals + "00")[:2], 10, 63)
	if err != nil || whole == "" || minor > 1_000_000_000 {
		return 0, false
	}
	return int64(minor), true
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// isID reports whether the API takes s as a SKU.
func isID(s string) bool {
	foreign := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	return len(s) >= 1 && len(s) <= 64 && !strings.ContainsFunc(s, foreign)
}
