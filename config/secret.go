package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

const mask = "***"

// Secret is a text that must not be seen. Whatever formats, logs or encodes it gets "***", or "" where there is
// none; only Reveal returns the text. The zero Secret is none.
//
// The text is behind a pointer because fmt calls no method of a value in somebody's unexported field: it would
// print a string, and prints an address.
type Secret struct {
	text *string
}

// NewSecret hides text. An empty text is no secret.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal returns the text itself, and "" where there is none.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsSet reports whether there is a text.
func (s Secret) IsSet() bool { return s.text != nil }

// String returns the mask.
func (s Secret) String() string {
	if !s.IsSet() {
		return ""
	}
	return mask
}

// Format writes the mask for every verb and flag.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is the mask.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is the mask, for JSON and all other encodings.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets the text.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}

// secretVariables are the variables that have a twin with the suffix _FILE.
func secretVariables() []string {
	return []string{"MYSQL_DSN", "AMQP_URL", "ADMIN_TOKEN", "API_TOKEN", "JWT_SECRET"}
}

// maxSecretFile is the size in bytes above which a file is taken for a mistake.
const maxSecretFile = 64 << 10

// readSecretFiles sets each variable that has a twin to the content of the twin's file.
func readSecretFiles(vars map[string]string, found *problems) {
	for _, name := range secretVariables() {
		twin := name + "_FILE"
		path := vars[twin]
		if path == "" {
			continue
		}
		if vars[name] != "" {
			found.add(name, name+": is set, and so is "+twin+": set one of them")
			continue
		}
		text, err := readSecretFile(path)
		if err != nil {
			found.add(name, twin+": "+err.Error())
			continue
		}
		vars[name] = text
	}
}

// readSecretFile returns what the file says, less one newline at its end. No error repeats the path: whoever
// takes NAME_FILE for NAME has put the secret there.
func readSecretFile(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return "", unnamed(err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxSecretFile+1))
	if err != nil {
		return "", unnamed(err)
	}
	if len(content) > maxSecretFile {
		return "", fmt.Errorf("the file is larger than %d bytes", maxSecretFile)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if text == "" {
		return "", errors.New("the file is empty")
	}
	return text, nil
}

func unnamed(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		err = p.Err
	}
	return fmt.Errorf("read the file: %w", err)
}
