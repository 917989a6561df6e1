package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// Setting is one variable as it takes effect.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"` // of a secret "***", or empty if there is none
	// Source is environment, default, or NAME_FILE for a secret that a file holds.
	Source string `json:"source"`
}

// Settings lists every setting of c, in the order of its fields, and where environ has it from.
func (c *Config) Settings(environ []string) (all []Setting) {
	vars := env.ToMap(environ)
	value := reflect.ValueOf(*c)
	for field, v := range value.Fields() {
		s := Setting{Name: field.Tag.Get("env"), Source: "default"}
		switch {
		case vars[s.Name] != "":
			s.Source = "environment"
		case field.Type == reflect.TypeFor[Secret]() && vars[s.Name+"_FILE"] != "":
			s.Source = s.Name + "_FILE" // and not its path: whoever takes one for the other has put the secret there
		}
		s.Value = text(v.Interface())
		all = append(all, s)
	}
	return all
}

// text writes a value as its variable takes it.
func text(value any) string {
	list, ok := value.([]time.Duration)
	if !ok {
		return fmt.Sprint(value)
	}
	all := make([]string, len(list))
	for i, d := range list {
		all[i] = d.String()
	}
	return strings.Join(all, ",")
}
