package api

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHalfPair(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		`""`: false, `"\u0041"`: false, `"\ud83e\uded6"`: false, `"\uD83E\uDED6x"`: false, `"\\ud83e"`: false, `"\\\\ud83e"`: false,
		`"\ud83e"`: true, `"\ud83ex"`: true, `"\ud83e\n"`: true, `"\ud83e\u0041"`: true, `"\uded6"`: true, `"\uded6\ud83e"`: true,
		`"\\\ud83e"`: true, `"\ud83e\uded6\ud83e"`: true, `"\ud83e\ud83e\uded6"`: true, `"\ud83e\\uded6"`: true,
	} {
		require.Equal(t, want, halfPair([]byte(raw)), raw)
	}
}

func TestShown(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": `""`, "coupon": "coupon", "größe": "größe", "a\nb": `"a\nb"`, `a"b`: `"a\"b"`, "\u202e": `"\u202e"`,
	} {
		require.Equal(t, want, shown(name))
	}
	require.Len(t, shown(string(bytes.Repeat([]byte("x"), 1000))), 67)
}

// What parseObject takes, encoding/json reads the same.
func FuzzParseObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1}`, `{"a":{"b":[1,"x",null,true,1e9,{}]}}`, `{"a":"\ud83e\uded6","b":"\\ud83e"}`, `{"a":1,"a":2}`, `{"a":"` + "\xff" + `"}`,
		`{"a":"\ud83e"}`, `{"":""}`, `{"a":1}x`, `[]`, `{"a":[[[[[[[[[[]]]]]]]]]]}`, ` {"a" : -0 } `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parseObject(data)
		if err != nil {
			describe(err)
			return
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		var want map[string]any
		require.NoError(t, dec.Decode(&want))
		require.Equal(t, want, got.fields)
	})
}
