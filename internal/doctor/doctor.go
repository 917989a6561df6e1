// Package doctor looks at what duebox stands on, a database and a broker, and says what to do about what is not right.
//
// It changes nothing in the database, and on the broker it makes an exchange and a queue for a moment. It does not promise that all
// is well where nothing is found.
package doctor

// State is how a check has ended.
type State string

// The states. What warns works, but not as it should or not for long.
const (
	OK   State = "ok"
	Warn State = "warn"
	Fail State = "fail"
)

// Finding is what one check has found. Advice says what to do, unless all is well.
type Finding struct {
	Check  string `json:"check"`
	State  State  `json:"state"`
	Found  string `json:"found"`
	Advice string `json:"advice"`
}

func ok(check, found string) Finding           { return Finding{check, OK, found, ""} }
func warn(check, found, advice string) Finding { return Finding{check, Warn, found, advice} }
func fail(check, found, advice string) Finding { return Finding{check, Fail, found, advice} }

// Worst is the worst state of the findings.
func Worst(all []Finding) State {
	worst := OK
	for _, f := range all {
		if f.State == Fail || f.State == Warn && worst == OK {
			worst = f.State
		}
	}
	return worst
}

// atLeast compares the numbers that a version begins with.
func atLeast(version string, major, minor int) bool {
	gotMajor, gotMinor, read := numbers(version)
	return read && (gotMajor > major || gotMajor == major && gotMinor >= minor)
}
