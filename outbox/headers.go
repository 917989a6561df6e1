package outbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Headers with a meaning of their own.
const (
	// HeaderTraceparent and HeaderTracestate are those of W3C Trace Context.
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
	// HeaderCloudEvent begins the name of a CloudEvents attribute, as in the HTTP protocol binding.
	HeaderCloudEvent = "ce-"

	maxTracestate      = 512
	maxAttributeLength = 20
)

func checkHeaders(headers map[string]string) error {
	total := 0
	for name, value := range headers {
		total += len(name) + len(value)
		if err := checkHeader(name, value); err != nil {
			return err
		}
	}
	if total > MaxHeaderBytes {
		return invalid("headers", "headers have %d bytes, the limit is %d", total, MaxHeaderBytes)
	}
	return checkEvent(headers)
}

func checkHeader(name, value string) error {
	lower := strings.ToLower(name)
	special := lower == HeaderTraceparent || lower == HeaderTracestate || strings.HasPrefix(lower, HeaderCloudEvent)
	switch {
	case !isName(name, MaxHeaderNameBytes):
		return invalid("headers", "header name %q is not 1 to %d characters of [A-Za-z0-9._-]", clip(name), MaxHeaderNameBytes)
	case lower == "cc" || lower == "bcc" || strings.HasPrefix(lower, "x-"):
		return invalid("headers", "header name %q is reserved by the broker", clip(name))
	case !isPrintable(value):
		return invalid("headers", "header %q has a value that is not printable UTF-8", name)
	case special && name != lower:
		return invalid("headers", "header name %q must be written in lower case", clip(name))
	case name == HeaderTraceparent && !ValidTraceparent(value):
		return invalid("headers", "traceparent %q is not that of W3C Trace Context", clip(value))
	case name == HeaderTracestate && (len(value) > maxTracestate || !isASCII(value)):
		return invalid("headers", "tracestate is not printable ASCII of at most %d bytes", maxTracestate)
	}
	return nil
}

// ValidTraceparent reports whether s can be the header traceparent, by section 3.2 of W3C Trace Context: 00, the trace's id, the parent's,
// and flags. Versions to come may have more after that.
func ValidTraceparent(s string) bool {
	const version, trace, parent, whole = 2, 3 + 32, 3 + 32 + 1 + 16, 3 + 32 + 1 + 16 + 1 + 2
	if len(s) < whole || s[version] != '-' || s[trace] != '-' || s[parent] != '-' {
		return false
	}
	for _, part := range []string{s[:version], s[version+1 : trace], s[trace+1 : parent], s[parent+1 : whole]} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	switch {
	case strings.Trim(s[version+1:trace], "0") == "" || strings.Trim(s[trace+1:parent], "0") == "":
		return false
	case s[:version] == "00":
		return len(s) == whole
	}
	return s[:version] != "ff" && (len(s) == whole || s[whole] == '-')
}

// checkEvent makes sure that headers which hold a part of a CloudEvent hold all that one needs.
func checkEvent(headers map[string]string) error {
	event := false
	for name, value := range headers {
		attribute, ok := strings.CutPrefix(name, HeaderCloudEvent)
		if !ok {
			continue
		}
		event = true
		switch {
		case !isAttribute(attribute):
			return invalid("headers", "header name %q is not ce- and 1 to %d characters of [a-z0-9]", clip(name), maxAttributeLength)
		case attribute == "data" || attribute == "datacontenttype":
			return invalid("headers", "%s is no attribute of its own: it is the payload, or its content type", name)
		case attribute == "specversion" && value != "1.0":
			return invalid("headers", "ce-specversion is %q, not 1.0", clip(value))
		case value == "":
			return invalid("headers", "%s is empty", name)
		}
		if attribute == "time" {
			if _, err := time.Parse(time.RFC3339, value); err != nil {
				return invalid("headers", "ce-time %q is not a time as RFC 3339 writes it", clip(value))
			}
		}
	}
	if !event {
		return nil
	}
	var missing []string
	for _, attribute := range []string{"specversion", "id", "source", "type"} {
		if _, ok := headers[HeaderCloudEvent+attribute]; !ok {
			missing = append(missing, HeaderCloudEvent+attribute)
		}
	}
	if len(missing) > 0 {
		return invalid("headers", "a CloudEvent needs %s beside %s", strings.Join(missing, ", "), firstAttribute(headers))
	}
	return nil
}

func firstAttribute(headers map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if strings.HasPrefix(name, HeaderCloudEvent) {
			return clip(name)
		}
	}
	return ""
}

func isAttribute(s string) bool {
	return s != "" && len(s) <= maxAttributeLength && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func encodeHeaders(headers map[string]string) ([]byte, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(headers)
	if err != nil {
		return nil, fmt.Errorf("encode headers: %w", err)
	}
	return b, nil
}

func decodeHeaders(b []byte) (map[string]string, error) {
	if len(b) == 0 {
		return nil, nil //nolint:nilnil // no headers is not an error
	}
	var headers map[string]string
	if err := json.Unmarshal(b, &headers); err != nil {
		return nil, fmt.Errorf("decode headers: %w", err)
	}
	return headers, nil
}
