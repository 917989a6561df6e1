package grammar

import (
	"regexp"
	"strings"
)

// shape is text with each literal as a question mark, lists of them as one, and white space and comments reduced:
// what is left is the same for all statements that one line of code sends.
func shape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		end := tokenEnd(text, i)
		switch token := text[i:end]; {
		case isSpace(token[0]):
			b.WriteByte(' ')
		case token[0] == '\'' || token[0] == '"' || isDigit(token[0]):
			b.WriteByte('?')
		default:
			b.WriteString(token)
		}
		i = end
	}
	s := strings.TrimSpace(b.String())
	s = regexp.MustCompile(`\?(?: ?, ?\?)+`).ReplaceAllString(s, "?+")
	return regexp.MustCompile(`(\(\?\+?\))(?: ?, ?\(\?\+?\))+`).ReplaceAllString(s, "$1+")
}

// tokenEnd returns where the token at start ends: a quoted text, a comment, a word or number, white space, or one
// byte of anything else.
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
		return runEnd(text, start, func(c byte) bool { return isWord(c) || isDigit(text[start]) && c == '.' })
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
