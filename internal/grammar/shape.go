package grammar

import (
	"bytes"
	"strings"
)

// shape is text with each literal as a question mark, lists of literals as one, groups in parentheses that repeat
// as one, and white space reduced: what is left is the same for all statements that one line of code sends.
func shape(text string) string {
	var (
		out    = make([]byte, 0, len(text))
		groups []int // where the open parentheses are in out
	)
	for i := 0; i < len(text); {
		end := tokenEnd(text, i)
		switch token := text[i:end]; {
		case isSpace(token[0]):
			if len(out) > 0 && out[len(out)-1] != ' ' {
				out = append(out, ' ')
			}
		case isLiteral(token):
			out = appendOnce(out, "?")
		case token == "(":
			groups = append(groups, len(out))
			out = append(out, '(')
		case token == ")" && len(groups) > 0:
			group := string(append(out[groups[len(groups)-1]:], ')'))
			out = appendOnce(out[:groups[len(groups)-1]], group)
			groups = groups[:len(groups)-1]
		default:
			out = append(out, token...)
		}
		i = end
	}
	return strings.TrimSpace(string(out))
}

// appendOnce appends item, but for a repetition of what stands before a comma or UNION ALL, which becomes "item+".
func appendOnce(out []byte, item string) []byte {
	before := bytes.TrimSuffix(out, []byte(" "))
	for _, separator := range []string{",", "UNION ALL"} {
		first, found := bytes.CutSuffix(before, []byte(separator))
		if !found {
			continue
		}
		first = bytes.TrimSuffix(first, []byte(" "))
		if bytes.HasSuffix(first, []byte(item+"+")) {
			return first
		}
		if bytes.HasSuffix(first, []byte(item)) {
			return append(first, '+')
		}
	}
	return append(out, item...)
}

// isLiteral reports whether a token is a number, a text with or without its character set, or NULL, which stands
// where a literal can.
func isLiteral(token string) bool {
	last := token[len(token)-1]
	return isDigit(token[0]) || last == '\'' || last == '"' || strings.EqualFold(token, "null")
}

// tokenEnd returns where the token at start ends: a quoted text with its introducer, a comment, a word or number,
// white space, or one byte of anything else.
func tokenEnd(text string, start int) int {
	switch c := text[start]; {
	case c == '\'' || c == '"' || c == '`':
		return quoteEnd(text, start)
	case strings.HasPrefix(text[start:], "/*"):
		return after(text, start, "*/")
	case c == '#' || strings.HasPrefix(text[start:], "-- "):
		return after(text, start, "\n")
	case isSpace(c):
		return runEnd(text, start, isSpace)
	case isWord(c):
		end := runEnd(text, start, func(c byte) bool { return isWord(c) || isDigit(text[start]) && c == '.' })
		if end < len(text) && text[end] == '\'' && (c == '_' || end == start+1) { // _binary'a', x'00'
			return quoteEnd(text, end)
		}
		return end
	default:
		return start + 1
	}
}

// quoteEnd returns where the quoted text at start ends. A doubled quote stands for itself, and so does one after a
// backslash, but for names in backticks.
func quoteEnd(text string, start int) int {
	quote := text[start]
	for i := start + 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote != '`':
			i++
		case text[i] == quote && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return len(text)
}

func after(text string, start int, mark string) int {
	if i := strings.Index(text[start:], mark); i >= 0 {
		return start + i + len(mark)
	}
	return len(text)
}

func runEnd(text string, start int, in func(byte) bool) int {
	end := start
	for end < len(text) && in(text[end]) {
		end++
	}
	return end
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isWord(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '$' || c == '@' || c >= 0x80
}
