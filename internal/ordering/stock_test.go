package ordering_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/duebox/duebox/internal/ordering"
	"github.com/duebox/duebox/model"
)

func TestSetStock_SetsWhatIsAvailableAndRecordsTheDifference(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	_, err := s.Product(t.Context(), "a")
	require.ErrorIs(t, err, model.ErrNoProduct)

	s.stock("a", 10)
	o := s.place(draft("a", 4))
	_, err = s.Pay(t.Context(), o.No, model.Payment{ID: "p", Amount: o.Total})
	require.NoError(t, err)
	s.place(draft("a", 1))
	name := strings.Repeat("🐘", model.MaxName)
	for _, units := range []int64{7, 0, 0, model.MaxStock, 3} {
		p, err := s.SetStock(t.Context(), model.Stocking{SKU: "a", Name: name, Stock: units})
		require.NoError(t, err)
		require.Equal(t, model.Product{SKU: "a", Name: name, Available: units, Reserved: 1, Sold: 4}, p)
		require.Equal(t, p, s.product("a"))
		s.requireConserved()
	}
	require.Equal(t, int64(8), s.number("SELECT SUM(quantity) FROM stock_movements WHERE direction = 'adjust'"))
	require.Equal(t, int64(5), s.number("SELECT COUNT(*) FROM stock_movements WHERE direction = 'adjust'"), "no adjustment by nothing")

	var invalid *model.InvalidError
	_, err = s.SetStock(t.Context(), model.Stocking{SKU: "a", Name: "x", Stock: -1})
	require.ErrorAs(t, err, &invalid)
	_, err = s.SetStock(t.Context(), model.Stocking{SKU: "a", Name: "x", Stock: model.MaxStock + 1})
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, int64(3), s.product("a").Available)
}

func TestSetStock_IsExactAmongOrders(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	var callers []func()
	for i := range 12 {
		callers = append(callers, func() {
			for n := range 8 {
				_, err := s.SetStock(t.Context(), model.Stocking{SKU: "a", Name: "x", Stock: int64(100*(i+1) + n)})
				if err != nil {
					t.Error(err)
				}
				o, err := s.Place(t.Context(), draft("a", 1), "")
				if err == nil && n%2 == 0 {
					_, err = s.Cancel(t.Context(), o.No)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	together(callers...)
	s.requireConserved()
}

func TestMigrations_MayRunTwice(t *testing.T) {
	t.Parallel()
	s := newShop(t, ordering.Config{})
	s.stock("a", 1)
	files, err := ordering.Migrations.ReadDir("migrations")
	require.NoError(t, err)
	require.Len(t, files, 8)
	for _, file := range files {
		text, err := ordering.Migrations.ReadFile("migrations/" + file.Name())
		require.NoError(t, err)
		up, _, found := strings.Cut(string(text), "-- +goose Down")
		require.True(t, found, file.Name())
		require.Equal(t, 1, strings.Count(up, ";\n"), "%s: one statement", file.Name())
		s.exec(up)
	}
	require.Equal(t, int64(1), s.product("a").Available)
}
