package rabbitmq

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/outbox"
)

const testFrameMax = 131072

func sample() outbox.Publication {
	due := time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)
	return outbox.Publication{
		Store: "11111111-2222-4333-8444-555555555555", ID: 42, Topic: "order.expire", Key: "Bestellung 7 / ü",
		Generation: 2, Attempt: 1, DueAt: due, FireAt: due, Payload: []byte(`{"no":"7"}`), ContentType: "application/json",
		Headers: map[string]string{
			"trace": "abc", "empty": "", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b",
			"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "order.expired", "ce-subject": "ü",
		},
	}
}

func wired(m amqp.Publishing, topic string) *amqp.Delivery {
	return &amqp.Delivery{
		Headers: maps.Clone(m.Headers), ContentType: m.ContentType, DeliveryMode: m.DeliveryMode,
		MessageId: m.MessageId, RoutingKey: topic, Body: m.Body,
	}
}

func want(p outbox.Publication) outbox.Delivery {
	return outbox.Delivery{
		Store: p.Store, ID: p.ID, Topic: p.Topic, Key: p.Key, Generation: p.Generation, Attempt: p.Attempt,
		DueAt: p.DueAt, Payload: p.Payload, ContentType: p.ContentType, Headers: p.Headers,
	}
}

func TestEncode_IsWhatTheContractSays(t *testing.T) {
	t.Parallel()
	p := sample()
	m, err := (&encoder{frameMax: testFrameMax}).encode(&p, 600_000)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(amqp.Publishing{
		Headers: amqp.Table{
			"duebox-id": int64(42), "duebox-store": "11111111-2222-4333-8444-555555555555", "duebox-key": "Bestellung 7 / ü",
			"duebox-generation": int64(2), "duebox-attempt": int64(1), "duebox-due": p.DueAt.UnixMicro(),
			"x-delay": int64(600_000), "user-trace": "abc", "user-empty": "",
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b",
			"cloudEvents:specversion": "1.0", "cloudEvents:id": "7", "cloudEvents:source": "/shop", "cloudEvents:type": "order.expired",
			"cloudEvents:subject": "ü",
		},
		ContentType: "application/json", DeliveryMode: amqp.Persistent,
		MessageId: "11111111-2222-4333-8444-555555555555-42", Body: []byte(`{"no":"7"}`),
	}, m))
}

func TestEncode_LeavesOutWhatIsNotThere(t *testing.T) {
	t.Parallel()
	e := encoder{}
	p := sample()
	_, err := e.encode(&p, 5) // what the reused table held before must not come back
	require.NoError(t, err)
	p.Key, p.Headers = "", nil
	m, err := e.encode(&p, 0)
	require.NoError(t, err)
	require.NotContains(t, m.Headers, "duebox-key")
	require.NotContains(t, m.Headers, "x-delay")
	require.Len(t, m.Headers, 5)
}

func TestEncode_RefusesWhatWouldEndTheChannel(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*outbox.Publication){
		"content type":     func(p *outbox.Publication) { p.ContentType = strings.Repeat("x", 256) },
		"header name":      func(p *outbox.Publication) { p.Headers = map[string]string{strings.Repeat("n", 251): ""} },
		"frame of":         func(p *outbox.Publication) { p.Headers = map[string]string{"a": strings.Repeat("v", testFrameMax)} },
		"duebox-store":     func(p *outbox.Publication) { p.Store = strings.Repeat("s", 65) },
		"duebox-id":        func(p *outbox.Publication) { p.ID = 0 },
		"routing key":      func(p *outbox.Publication) { p.Topic = "order.*" },
		"duebox-key":       func(p *outbox.Publication) { p.Key = "line\nbreak" },
		"duebox-attempt":   func(p *outbox.Publication) { p.Attempt = -1 },
		"duebox-generatio": func(p *outbox.Publication) { p.Generation = -1 },
	} {
		p := sample()
		spoil(&p)
		_, err := (&encoder{frameMax: testFrameMax}).encode(&p, 0)
		require.ErrorIs(t, err, outbox.ErrUnpublishable, name)
		require.ErrorContains(t, err, name)
		require.Less(t, len(err.Error()), 300, name)
	}
}

// The size is checked against what amqp091 writes, byte for byte.
func TestEncode_KnowsTheSizeOfTheHeaderFrame(t *testing.T) {
	t.Parallel()
	p := sample()
	m, err := (&encoder{}).encode(&p, 7)
	require.NoError(t, err)
	require.Equal(t, sentHeaderFrame(t, m), headerFrameSize(&m))
	size := headerFrameSize(&m)
	_, err = (&encoder{frameMax: size}).encode(&p, 7)
	require.NoError(t, err)
	_, err = (&encoder{frameMax: size - 1}).encode(&p, 7)
	require.ErrorIs(t, err, outbox.ErrUnpublishable)
}

func TestDelay_IsRoundedUpToTheMillisecond(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for ahead, ms := range map[time.Duration]int64{
		-time.Hour: -3_600_000, -1: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		1500 * time.Microsecond: 2, 25 * 24 * time.Hour: 25 * 86_400_000, 365 * 24 * time.Hour: 365 * 86_400_000,
	} {
		require.Equal(t, ms, delayOf(now.Add(ahead), now), ahead)
	}
}

func TestScenario01_DelaysBeyondTheExchangeAreNeverSent(t *testing.T) {
	t.Parallel()
	b, err := NewBroker("amqp://localhost", Config{})
	require.NoError(t, err)
	now := time.Now()
	for ahead, want := range map[time.Duration]route{
		-time.Second:                          {exchange: "duebox.deliver"},
		0:                                     {exchange: "duebox.deliver"},
		1500 * time.Microsecond:               {exchange: "duebox.delay", delay: 2},
		24 * 24 * time.Hour:                   {exchange: "duebox.delay", delay: 24 * 86_400_000},
		25 * 24 * time.Hour:                   {exchange: "duebox.delay", delay: 25 * 86_400_000},
		49 * 24 * time.Hour:                   {exchange: "duebox.delay", delay: 49 * 86_400_000},
		math.MaxUint32 * time.Millisecond:     {exchange: "duebox.delay", delay: math.MaxUint32},
		math.MaxUint32*time.Millisecond + 1:   {},
		60 * 24 * time.Hour:                   {},
		365 * 24 * time.Hour:                  {},
		time.Duration(math.MaxInt64 - 1<<40):  {},
		time.Duration(math.MinInt64 + 1<<40):  {exchange: "duebox.deliver"},
		math.MaxUint32*time.Millisecond - 500: {exchange: "duebox.delay", delay: math.MaxUint32},
	} {
		p := sample()
		p.FireAt = now.Add(ahead)
		got, err := plugin{b}.route(&p, now)
		if want == (route{}) {
			require.ErrorIs(t, err, outbox.ErrTooSoon, ahead)
			continue
		}
		require.NoError(t, err, ahead)
		require.Equal(t, want, got, ahead)
	}
}

func TestDecode_ReadsWhatEncodeWrote(t *testing.T) {
	t.Parallel()
	p := sample()
	m, err := (&encoder{frameMax: testFrameMax}).encode(&p, 9)
	require.NoError(t, err)
	d := wired(m, p.Topic)
	d.Headers["x-delivery-count"] = int64(3)
	d.Headers["x-death"] = []any{amqp.Table{"queue": "q"}}
	got, err := decode(d)
	require.NoError(t, err)
	expected := want(p)
	expected.Redeliveries = 3
	require.Empty(t, cmp.Diff(expected, got))
}

func TestDecode_TakesTheDeliveryCountOfAnyIntegerType(t *testing.T) {
	t.Parallel()
	p := sample()
	m, err := (&encoder{}).encode(&p, 0)
	require.NoError(t, err)
	for _, count := range []any{int64(2), int32(2), int16(2), int8(2), 2, byte(2), uint16(2), uint32(2)} {
		d := wired(m, p.Topic)
		d.Headers["x-delivery-count"] = count
		got, err := decode(d)
		require.NoError(t, err)
		require.Equal(t, 2, got.Redeliveries, "%T", count)
	}
	for _, count := range []any{nil, "2", 2.5, int64(-1)} {
		d := wired(m, p.Topic)
		d.Headers["x-delivery-count"], d.Redelivered = count, true
		got, err := decode(d)
		require.NoError(t, err)
		require.Equal(t, 1, got.Redeliveries, "%T", count)
		d.Redelivered = false
		got, err = decode(d)
		require.NoError(t, err)
		require.Zero(t, got.Redeliveries, "%T", count)
	}
}

func TestDecode_SaysWhatIsMalformed(t *testing.T) {
	t.Parallel()
	for text, spoil := range map[string]func(*amqp.Delivery){
		"duebox-id is missing":            func(d *amqp.Delivery) { delete(d.Headers, headerID) },
		"duebox-id is string":             func(d *amqp.Delivery) { d.Headers[headerID] = "42" },
		"duebox-id is -1":                 func(d *amqp.Delivery) { d.Headers[headerID] = int64(-1) },
		"duebox-store is missing":         func(d *amqp.Delivery) { delete(d.Headers, headerStore) },
		"duebox-store is []uint8":         func(d *amqp.Delivery) { d.Headers[headerStore] = []byte("s") },
		"duebox-store has 0 bytes":        func(d *amqp.Delivery) { d.Headers[headerStore] = "" },
		"duebox-key is empty":             func(d *amqp.Delivery) { d.Headers[headerKey] = "" },
		"duebox-key is bool":              func(d *amqp.Delivery) { d.Headers[headerKey] = true },
		`duebox-key "a\x00" is not a key`: func(d *amqp.Delivery) { d.Headers[headerKey] = "a\x00" },
		"duebox-generation is missing":    func(d *amqp.Delivery) { delete(d.Headers, headerGeneration) },
		"duebox-attempt is missing":       func(d *amqp.Delivery) { delete(d.Headers, headerAttempt) },
		"duebox-attempt is 4294967296":    func(d *amqp.Delivery) { d.Headers[headerAttempt] = int64(1 << 32) },
		"duebox-due is float64":           func(d *amqp.Delivery) { d.Headers[headerDue] = 1.0 },
		`"user-n" is int64`:               func(d *amqp.Delivery) { d.Headers["user-n"] = int64(1) },
		`"cloudEvents:n" is bool`:         func(d *amqp.Delivery) { d.Headers["cloudEvents:n"] = true },
		`"traceparent" is []uint8`:        func(d *amqp.Delivery) { d.Headers["traceparent"] = []byte("x") },
		"routing key":                     func(d *amqp.Delivery) { d.RoutingKey = "#" },
		"is missing":                      func(d *amqp.Delivery) { d.Headers = nil },
	} {
		p := sample()
		m, err := (&encoder{}).encode(&p, 0)
		require.NoError(t, err)
		d := wired(m, p.Topic)
		spoil(d)
		_, err = decode(d)
		require.ErrorContains(t, err, text)
	}
}

func FuzzCodec_RoundTrip(f *testing.F) {
	p := sample()
	f.Add(p.Store, p.ID, p.Topic, p.Key, p.Generation, p.Attempt, p.DueAt.UnixMicro(), p.Payload, p.ContentType, "trace", "abc", int64(5))
	for _, name := range []string{"ce-id", "ce-", "traceparent", "Traceparent", "cloudEvents:id", "user-x"} {
		f.Add(p.Store, p.ID, p.Topic, p.Key, p.Generation, p.Attempt, p.DueAt.UnixMicro(), p.Payload, p.ContentType, name, "1", int64(0))
	}
	f.Add("", int64(0), "", "", int64(-1), -1, int64(math.MinInt64), []byte(nil), strings.Repeat("c", 300), "", "\xff", int64(-5))
	f.Fuzz(func(t *testing.T, store string, id int64, topic, key string, generation int64, attempt int, due int64, payload []byte, contentType, name, value string, delay int64) {
		p := outbox.Publication{
			Store: store, ID: id, Topic: topic, Key: key, Generation: generation, Attempt: attempt,
			DueAt: time.UnixMicro(due).UTC(), Payload: payload, ContentType: contentType, Headers: map[string]string{name: value},
		}
		m, err := (&encoder{frameMax: testFrameMax}).encode(&p, delay)
		if err != nil {
			require.ErrorIs(t, err, outbox.ErrUnpublishable)
			return
		}
		require.NoError(t, m.Headers.Validate())
		got, err := decode(wired(m, topic))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want(p), got))
	})
}

func FuzzCodec_DecodesAnything(f *testing.F) {
	f.Add(uint64(0), int64(42), "store", "order.expire", 1.5, []byte("x"))
	f.Add(uint64(math.MaxUint64), int64(-1), "\x00\xff", "", math.NaN(), []byte(nil))
	f.Fuzz(func(t *testing.T, kinds uint64, n int64, text, routingKey string, fraction float64, raw []byte) {
		headers := amqp.Table{}
		for _, name := range []string{headerID, headerStore, headerKey, headerGeneration, headerAttempt, headerDue, headerDeliveries, userPrefix + text} {
			values := []any{n, text, int32(n), nil, fraction, raw, amqp.Table{text: []any{fraction, raw, time.Unix(n, 0)}}, amqp.Decimal{Value: int32(n)}}
			headers[name] = values[kinds%uint64(len(values))]
			kinds /= uint64(len(values))
		}
		d := amqp.Delivery{Headers: headers, RoutingKey: routingKey, Body: raw, MessageId: text}
		got, err := decode(&d)
		if err == nil {
			require.True(t, outbox.ValidTopic(got.Topic))
			require.True(t, got.Key == "" || outbox.ValidKey(got.Key))
			require.Positive(t, got.ID)
			return
		}
		require.Empty(t, cmp.Diff(outbox.Delivery{}, got))
		stray := strayOf(&d, err)
		require.Equal(t, "malformed", stray.Reason)
		require.NotEmpty(t, stray.Detail)
		require.True(t, json.Valid(stray.Headers))
	})
}

func TestStray_ShowsAnyTable(t *testing.T) {
	t.Parallel()
	d := amqp.Delivery{
		Headers: amqp.Table{
			"nan": math.NaN(), "inf": float32(math.Inf(1)), "raw": []byte("ab"), "time": time.Unix(0, 0).UTC(),
			"list": []any{int64(1), amqp.Table{"decimal": amqp.Decimal{Scale: 2, Value: 314}}}, "none": nil, "n": int64(math.MaxInt64),
		},
		MessageId: "m", RoutingKey: "r", Body: bytes.Repeat([]byte("x"), 10_000_000),
	}
	stray := strayOf(&d, errors.New("because"))
	require.JSONEq(t, `{"nan":"NaN","inf":"+Inf","raw":"YWI=","time":"1970-01-01 00:00:00 +0000 UTC",
		"list":[1,{"decimal":"{2 314}"}],"none":null,"n":9223372036854775807}`, string(stray.Headers))
	require.Len(t, stray.Payload, 10_000_000, "whoever keeps it knows how much can be kept")
	require.Equal(t, "because", stray.Detail)
	require.Equal(t, []string{"m", "r"}, []string{stray.MessageID, stray.RoutingKey})
}
