package model_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/model"
)

func TestValidID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"": false, "a": true, "A.b_c-9": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false,
		"a b": false, "a/b": false, "ä": false, "a\x00": false, "a\n": false, " a": false, "'": false, "%41": false,
	} {
		require.Equal(t, want, model.ValidID(id), "%q", id)
	}
}

func TestValidKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"": false, " ": true, `"8e03978e-40d5"`: true, "~": true, strings.Repeat("k", 128): true, strings.Repeat("k", 129): false,
		"a\tb": false, "\x7f": false, "é": false,
	} {
		require.Equal(t, want, model.ValidKey(key), "%q", key)
	}
}

// fields are the fields that err names.
func fields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var invalid *model.InvalidError
	require.ErrorAs(t, err, &invalid)
	names := []string{}
	for _, f := range invalid.Fields {
		names = append(names, f.Field)
		require.NotEmpty(t, f.Detail)
		require.ErrorContains(t, err, f.Error())
	}
	return names
}

func TestDraft_Validate(t *testing.T) {
	t.Parallel()
	valid := func() model.Draft {
		return model.Draft{Kind: model.Presale, User: "ann", Items: []model.Item{
			{SKU: "a", Quantity: 1, Price: 0}, {SKU: "b", Quantity: model.MaxQuantity, Price: model.MaxPrice},
		}}
	}
	for name, test := range map[string]struct {
		change func(d *model.Draft)
		want   []string
	}{
		"valid":            {func(*model.Draft) {}, nil},
		"no kind":          {func(d *model.Draft) { d.Kind = "" }, []string{"kind"}},
		"unknown kind":     {func(d *model.Draft) { d.Kind = "Normal" }, []string{"kind"}},
		"no user":          {func(d *model.Draft) { d.User = "" }, []string{"user"}},
		"no items":         {func(d *model.Draft) { d.Items = nil }, []string{"items"}},
		"too many items":   {func(d *model.Draft) { d.Items = many(model.MaxItems + 1) }, []string{"items"}},
		"most items":       {func(d *model.Draft) { d.Items = many(model.MaxItems) }, nil},
		"a SKU twice":      {func(d *model.Draft) { d.Items[1].SKU = "a" }, []string{"items[1].sku"}},
		"a bad SKU":        {func(d *model.Draft) { d.Items[1].SKU = "b b" }, []string{"items[1].sku"}},
		"no units":         {func(d *model.Draft) { d.Items[0].Quantity = 0 }, []string{"items[0].quantity"}},
		"negative units":   {func(d *model.Draft) { d.Items[0].Quantity = -1 }, []string{"items[0].quantity"}},
		"absurd units":     {func(d *model.Draft) { d.Items[0].Quantity = math.MaxInt64 }, []string{"items[0].quantity"}},
		"negative price":   {func(d *model.Draft) { d.Items[0].Price = math.MinInt64 }, []string{"items[0].price"}},
		"absurd price":     {func(d *model.Draft) { d.Items[0].Price = model.MaxPrice + 1 }, []string{"items[0].price"}},
		"everything wrong": {func(d *model.Draft) { *d = model.Draft{Items: []model.Item{{}}} }, []string{"kind", "user", "items[0].sku", "items[0].quantity"}},
	} {
		d := valid()
		test.change(&d)
		require.Equal(t, test.want, fields(t, d.Validate()), name)
	}
}

func many(n int) []model.Item {
	items := make([]model.Item, n)
	for i := range items {
		items[i] = model.Item{SKU: "sku" + strings.Repeat("x", i%60) + string(rune('a'+i/60)), Quantity: model.MaxQuantity, Price: model.MaxPrice}
	}
	return items
}

func TestDraft_TheLargestTotalIsExactInADouble(t *testing.T) {
	t.Parallel()
	d := model.Draft{Kind: model.Normal, User: "ann", Items: many(model.MaxItems)}
	require.NoError(t, d.Validate())
	require.Equal(t, int64(model.MaxAmount), d.Total())
	require.Less(t, d.Total(), int64(1<<53))
}

func TestDraft_FingerprintTellsDraftsApart(t *testing.T) {
	t.Parallel()
	d := func() model.Draft {
		return model.Draft{Kind: model.Normal, User: "ann", Items: []model.Item{{SKU: "a", Quantity: 1, Price: 2}, {SKU: "b", Quantity: 1, Price: 2}}}
	}
	seen := map[[32]byte]bool{d().Fingerprint(): true}
	for _, change := range []func(d *model.Draft){
		func(d *model.Draft) { d.Kind = model.Flash },
		func(d *model.Draft) { d.User = "bob" },
		func(d *model.Draft) { d.Items[0].SKU = "c" },
		func(d *model.Draft) { d.Items[0].Quantity = 2 },
		func(d *model.Draft) { d.Items[0].Price = 1 },
		func(d *model.Draft) { d.Items[0], d.Items[1] = d.Items[1], d.Items[0] },
		func(d *model.Draft) { d.Items = d.Items[:1] },
	} {
		other := d()
		change(&other)
		require.False(t, seen[other.Fingerprint()])
		seen[other.Fingerprint()] = true
	}
	require.True(t, seen[d().Fingerprint()])
}

func TestPayment_Validate(t *testing.T) {
	t.Parallel()
	require.Nil(t, fields(t, model.Payment{ID: "p", Amount: model.MaxAmount}.Validate()))
	require.Nil(t, fields(t, model.Payment{ID: "p"}.Validate()))
	require.Equal(t, []string{"payment_id", "amount"}, fields(t, model.Payment{Amount: -1}.Validate()))
	require.Equal(t, []string{"amount"}, fields(t, model.Payment{ID: "p", Amount: model.MaxAmount + 1}.Validate()))
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status  model.Status
		amount  int64
		paidFor string
		want    model.Verdict
		err     error
	}{
		{model.Pending, 10, "", model.Accepted, nil},
		{model.Pending, 9, "", model.Refused, model.ErrWrongAmount},
		{model.Pending, 10, "other", model.Refused, model.ErrPaymentTaken},
		{model.Paid, 10, "", model.Returned, nil},
		{model.Paid, 10, "o1", model.Repeated, nil},
		{model.Paid, 11, "o1", model.Refused, model.ErrWrongAmount},
		{model.Paid, 11, "", model.Refused, model.ErrWrongAmount},
		{model.Closed, 10, "", model.Returned, nil},
		{model.Closed, 10, "o1", model.Repeated, nil},
		{model.Closed, 10, "other", model.Refused, model.ErrPaymentTaken},
		{model.Closed, 9, "", model.Refused, model.ErrWrongAmount},
	} {
		got, err := model.Judge("o1", test.status, 10, model.Payment{ID: "p", Amount: test.amount}, test.paidFor)
		require.Equal(t, test.want, got, "%+v", test)
		require.ErrorIs(t, err, test.err, "%+v", test)
	}
}

func TestStocking_Validate(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"Teapot": true, "茶壶 🫖": true, "👩‍👩‍👧": true, "قوري": true, "O'Brien <b>&": true,
		strings.Repeat("🐘", model.MaxName): true, strings.Repeat("🐘", model.MaxName+1): false,
		"": false, " ": false, " a": false, "a ": false, "a\u2003": false, "a\tb": false, "a\x00b": false, "a\u0085b": false,
		"a\u2028b": false, "a\x7fb": false, "\xff": false, "a\xed\xa0\x80": false,
	} {
		err := model.Stocking{SKU: "a", Name: name, Stock: 1}.Validate()
		require.Equal(t, valid, err == nil, "%q: %v", name, err)
	}
	require.Equal(t, []string{"sku", "stock"}, fields(t, model.Stocking{Name: "a", Stock: -1}.Validate()))
	require.Equal(t, []string{"stock"}, fields(t, model.Stocking{SKU: "a", Name: "a", Stock: model.MaxStock + 1}.Validate()))
}

func TestCheckDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for ahead, want := range map[time.Duration]bool{
		time.Microsecond: true, model.MaxExtension: true, 0: false, -time.Hour: false, model.MaxExtension + 1: false,
	} {
		err := model.CheckDue(now.Add(ahead), now)
		require.Equal(t, want, err == nil, "%v: %v", ahead, err)
	}
	require.Equal(t, []string{"due_at"}, fields(t, model.CheckDue(time.Time{}, now)))
}

func TestOrder_AsPlaced(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	o := model.Order{
		No: "o", Kind: model.Flash, User: "ann", Status: model.Pending, Items: []model.Item{{SKU: "a", Quantity: 1, Price: 2}},
		Total: 2, DueAt: now, FirstDueAt: now, CreatedAt: now,
	}
	later := o
	later.Status, later.CloseReason, later.Refunded = model.Closed, model.User, 2
	later.DueAt, later.ClosedAt, later.PaidAt, later.RemindedAt = now.Add(1), now.Add(2), now.Add(3), now.Add(4)
	require.Equal(t, o, later.AsPlaced())
}

func TestOrderFilter_Validate(t *testing.T) {
	t.Parallel()
	require.Nil(t, fields(t, model.OrderFilter{Limit: 1}.Validate()))
	require.Nil(t, fields(t, model.OrderFilter{User: "a", Status: model.Paid, After: "b", Limit: model.MaxPage}.Validate()))
	require.Equal(t, []string{"user", "status", "after", "limit"},
		fields(t, model.OrderFilter{User: "?", Status: "open", After: "?", Limit: model.MaxPage + 1}.Validate()))
}

func TestOrderPayload_ReadsWhatItWrote(t *testing.T) {
	t.Parallel()
	p := model.OrderPayload{No: "o-1"}
	got, err := model.DecodeOrderPayload(p.Encode())
	require.NoError(t, err)
	require.Equal(t, p, got)
	for _, bad := range []string{
		"", "null", "{}", `{"no":1}`, `{"no":""}`, `{"no":"a b"}`, `{"no":"a"} {}`, `{"no":"a"}x`, `{"no":"a","x":1}`, `[]`, "\xff",
	} {
		_, err := model.DecodeOrderPayload([]byte(bad))
		require.Error(t, err, bad)
	}
	_, err = model.DecodeOrderPayload([]byte(" {\"no\":\"a\"}\n"))
	require.NoError(t, err)
}

func FuzzDecodeOrderPayload(f *testing.F) {
	f.Add([]byte(`{"no":"a"}`))
	f.Add([]byte(`{"no":"\ud800"}`))
	f.Add([]byte(`{"no":"a"}{`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := model.DecodeOrderPayload(b)
		if err != nil {
			return
		}
		again, err := model.DecodeOrderPayload(p.Encode())
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
