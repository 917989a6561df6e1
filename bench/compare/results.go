package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// results are what was measured, by the names of contenders.
type results struct {
	Fast          bool
	Orders, Quiet int
	Waiting       int
	Phases        []string
	Arguments     []string
	Exchange      string
	Versions      []string // of servers and libraries
	Machine       string
	Alone         map[string]alone
	Together      map[string]map[string]tally // by contender and phase
	Conserved     map[string]bool
	Lines         map[string]int
	Minutes       float64
	Failed        []string // what could not be done: faults, and orders that could not be placed
}

// alone is what was measured of a contender while no other ran.
type alone struct {
	Tally                  tally
	IdlePerS, IdleRowsPerS float64 // statements, and rows read, while nothing waits, beside Quiet finished orders
	BusyPerS               float64 // statements, while orders are placed, paid and closed
	PerOrder, RowsPerOrder float64 // of an order from placing to its end: statements beyond those that are idle, and all rows
	// bytes more, for each 100,000 orders that wait; of processes what is live on their heaps, of the database its files, orders included
	Broker, Redis, Process, Database float64
}

func write(out io.Writer, found results) error {
	text, err := json.MarshalIndent(found, "", " ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// failure is what kept a comparison from being whole.
func (r results) failure() error {
	if len(r.Failed) == 0 {
		return nil
	}
	return errors.New("not all was done: " + strings.Join(r.Failed, "; "))
}

// check finds what cannot have been written by a comparison that has run.
func (r results) check() error {
	for name, byPhase := range r.Together {
		if _, err := find(name); err != nil {
			return err
		}
		for _, phase := range append([]string{""}, r.Phases...) {
			if _, ok := byPhase[phase]; !ok {
				return fmt.Errorf("%s has no phase %q", name, phase)
			}
		}
		if _, ok := r.Alone[name]; !ok && r.Quiet > 0 {
			return fmt.Errorf("%s has not run alone", name)
		}
	}
	if err := known("phase", r.Phases, phaseNames()); err != nil {
		return err
	}
	if len(r.Together) == 0 || r.Orders < 1 || r.Waiting < 1 {
		return errors.New("it is not complete")
	}
	return nil
}

func read(file string) (found results, err error) {
	text, err := os.ReadFile(file) //nolint:gosec // the user's own
	if err != nil {
		return found, err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := errors.Join(in.Decode(&found), found.check()); err != nil {
		return found, fmt.Errorf("-lines %s: %w", file, err)
	}
	return found, nil
}
