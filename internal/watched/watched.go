// Package watched keeps what files say: certificates, keys and whatever else is exchanged while a process runs.
//
// A change is seen within a second of the next use, however the file was exchanged: written anew, renamed over, or by a link that points
// elsewhere. What cannot be used is told once and changes nothing; what was read last stays.
package watched

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// How long a look at the files is good for.
	interval = time.Second
	// The size in bytes above which a file is taken for a mistake.
	maxFile = 1 << 20
)

// Files is what a set of files makes, read anew when one of them has changed. It is safe for concurrent use.
type Files[T any] struct {
	paths []string
	parse func(contents [][]byte) (T, error)
	told  func(error)

	mu     sync.Mutex
	looked time.Time
	seen   [][]byte
	failed string
	value  T
}

// Open reads the files, and makes of their contents, in the order of their paths, what parse returns. Later failures are told to
// told, which must not block, each once.
func Open[T any](parse func(contents [][]byte) (T, error), told func(error), paths ...string) (*Files[T], error) {
	f := &Files[T]{paths: paths, parse: parse, told: told}
	if err := f.read(); err != nil {
		return nil, err
	}
	f.looked = time.Now()
	return f, nil
}

// Get is what the files say now. It reads them, but not more often than each second.
func (f *Files[T]) Get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.looked) >= interval {
		f.looked = now
		err := f.read()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != "" && text != f.failed {
			f.told(err)
		}
		f.failed = text
	}
	return f.value
}

func (f *Files[T]) read() error {
	contents := make([][]byte, len(f.paths))
	for i, path := range f.paths {
		var err error
		if contents[i], err = readFile(path); err != nil {
			return err
		}
	}
	if f.seen != nil && slices.EqualFunc(contents, f.seen, bytes.Equal) {
		return nil
	}
	value, err := f.parse(contents)
	if err != nil {
		return err
	}
	f.seen, f.value = contents, value
	return nil
}

func readFile(path string) ([]byte, error) {
	// A pipe must not hold up who looks: opened like this it answers at once, and is told apart.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("read a file: %w", err)
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil {
		return nil, fmt.Errorf("read a file: %w", err)
	} else if !info.Mode().IsRegular() {
		return nil, unfit(path, "it is no regular file")
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read a file: %w", err)
	}
	if len(content) > maxFile {
		return nil, unfit(path, "it is larger than 1 MiB")
	}
	return content, nil
}

// unfit is an error of a file that cannot be what was meant. Like those of reading it names the path.
func unfit(path, why string) error {
	return fmt.Errorf("read a file: %w", &os.PathError{Op: "read", Path: path, Err: errors.New(why)})
}
