package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRepeats_WritesOneLineOfAKindAndCountsTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}}))
		var r repeats
		for range 1000 {
			r.pass("a", log).Warn("a")
			r.pass("b", log).Warn("b")
		}
		<-time.After(quiet)
		for range 2 {
			r.pass("a", log).Warn("a")
		}
		<-time.After(quiet)
		r.pass("a", log).Warn("a")
		r.pass("b", log).Warn("b")
		require.Equal(t, []string{"msg=a", "msg=b", "msg=a similar=999", "msg=a similar=1", "msg=b similar=999"},
			strings.Split(strings.TrimSpace(out.String()), "\n"))
	})
}
