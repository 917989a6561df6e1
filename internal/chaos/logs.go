package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// logs are files with what the product's processes say, one for each, over all its lives.
type logs struct {
	dir string

	mu    sync.Mutex
	files map[string]*os.File
	errs  []error
}

func newLogs(dir string) (*logs, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make a folder for the logs: %w", err)
	}
	return &logs{dir: dir, files: map[string]*os.File{}}, nil
}

// keep returns what appends each line to the file of a process, and lets h read it.
func (l *logs) keep(name string, h *heard) func([]byte) {
	file, err := os.Create(l.path(name))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.errs = append(l.errs, err)
		return h.read
	}
	l.files[name] = file
	return func(line []byte) {
		_, _ = file.Write(line)
		h.read(line)
	}
}

func (l *logs) path(name string) string { return filepath.Join(l.dir, name+".log") }

func (l *logs) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, file := range l.files {
		l.errs = append(l.errs, file.Close())
	}
	return errors.Join(l.errs...)
}

// heard counts what became of deliveries, as the workers tell it. It is for the report; nothing is judged by it.
type heard struct {
	mu       sync.Mutex
	outcomes map[string]int
}

func (h *heard) read(line []byte) {
	const handled = "delivery handled"
	if !bytes.Contains(line, []byte(handled)) {
		return
	}
	var said struct {
		Message string `json:"msg"`
		Outcome string `json:"outcome"`
	}
	if json.Unmarshal(line, &said) != nil || said.Message != handled {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.outcomes == nil {
		h.outcomes = map[string]int{}
	}
	h.outcomes[said.Outcome]++
}

func (h *heard) count(outcome string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.outcomes[outcome]
}
