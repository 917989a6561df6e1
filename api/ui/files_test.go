package ui_test

import (
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/api/ui"
)

// fetch gets a path from the server without following where it leads.
func (s *shop) fetch(path, tag string) (status int, header http.Header, body string) {
	s.t.Helper()
	client := &http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.base+path, http.NoBody)
	require.NoError(s.t, err)
	req.Header.Set("If-None-Match", tag)
	resp, err := client.Do(req)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, resp.Header, string(text)
}

// Each file is served under a policy that lets nothing else run, and is sent once.
func TestFiles_AreServedUnderAStrictPolicy(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	// What such a policy would refuse in a page, or only work without one.
	inline := regexp.MustCompile(`(?i)<script(?:>| (?:[^>]*[^>c])?>)[^<]|<style|\sstyle=|\son\w+="|javascript:|innerHTML|\beval\(`)
	n := 0
	require.NoError(t, fs.WalkDir(ui.Files(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		n++
		want, err := fs.ReadFile(ui.Files(), name)
		require.NoError(t, err)
		status, header, body := s.fetch("/ui/"+name, "")
		require.Equal(t, http.StatusOK, status, name)
		require.Equal(t, string(want), body)
		require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'")
		require.NotContains(t, header.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-cache", header.Get("Cache-Control"))
		require.NotEmpty(t, header.Get("Content-Type"), name)
		require.Empty(t, inline.FindString(body), name)
		require.NotRegexp(t, `https?://`, regexp.MustCompile(`http://www\.w3\.org/\S+`).ReplaceAllString(body, ""), name)

		status, _, body = s.fetch("/ui/"+name, header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, status)
		require.Empty(t, body)
		return nil
	}))
	require.Greater(t, n, 20)

	status, _, page := s.fetch("/ui/", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "<title>duebox</title>")
	status, header, _ := s.fetch("/ui", "")
	require.Equal(t, http.StatusPermanentRedirect, status)
	require.Equal(t, "/ui/", header.Get("Location"))
	for _, path := range []string{"/ui/none.js", "/ui/views", "/ui/views/none.js", "/ui/..%2fui.go", "/ui/views/..%2fapp.js"} {
		status, _, _ := s.fetch(path, "")
		require.Equal(t, http.StatusNotFound, status, path)
	}
}
