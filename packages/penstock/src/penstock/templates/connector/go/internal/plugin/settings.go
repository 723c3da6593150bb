package plugin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"placeholder-name/internal/pb/configv1"
)

// The types of settings.
const (
	String   = configv1.Parameter_TYPE_STRING
	Int      = configv1.Parameter_TYPE_INT
	Float    = configv1.Parameter_TYPE_FLOAT
	Bool     = configv1.Parameter_TYPE_BOOL
	File     = configv1.Parameter_TYPE_FILE
	Duration = configv1.Parameter_TYPE_DURATION
)

// Setting declares what a connector can be told. The host shows it to people; what it is given is checked against it.
type Setting struct {
	Name, Description string
	Type              configv1.Parameter_Type
	Default           string
	Required          bool
	GreaterThan       string // for numbers
	LessThan          string // for numbers
	OneOf             []string
}

// Settings are values that were checked, by the names of the settings: these getters can't fail. Of one that was not given it is
// the default, or the zero of its type.
type Settings map[string]string

func (s Settings) Int(name string) int {
	value, _ := strconv.Atoi(s[name])
	return value
}

func (s Settings) Float(name string) float64 {
	value, _ := strconv.ParseFloat(s[name], 64)
	return value
}

func (s Settings) Bool(name string) bool {
	value, _ := strconv.ParseBool(s[name])
	return value
}

func (s Settings) Duration(name string) time.Duration {
	value, _ := time.ParseDuration(s[name])
	return value
}

// checked fills in defaults. The error names everything that is wrong, a line each.
func checked(config map[string]string, declared []Setting) (Settings, error) {
	made := Settings{}
	var wrong []error
	known := map[string]bool{}
	for _, setting := range declared {
		known[setting.Name] = true
		value := config[setting.Name]
		if value == "" {
			value = setting.Default
		}
		if err := setting.check(value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", setting.Name, err))
		}
		made[setting.Name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(config)) {
		if !known[name] {
			wrong = append(wrong, fmt.Errorf("%s: no such setting", name))
		}
	}
	return made, errors.Join(wrong...)
}

func (s Setting) check(value string) error {
	if value == "" {
		if s.Required {
			return errors.New("is required")
		}
		return nil
	}
	var err error
	switch s.Type {
	case Int:
		_, err = strconv.Atoi(value)
	case Float:
		_, err = strconv.ParseFloat(value, 64)
	case Bool:
		_, err = strconv.ParseBool(value)
	case Duration:
		_, err = time.ParseDuration(value)
	}
	if err != nil {
		return fmt.Errorf("%q is no %s", value, strings.ToLower(strings.TrimPrefix(s.Type.String(), "TYPE_")))
	}
	if number, limit := number(value), number(s.GreaterThan); s.GreaterThan != "" && number <= limit {
		return fmt.Errorf("%s is not greater than %s", value, s.GreaterThan)
	}
	if number, limit := number(value), number(s.LessThan); s.LessThan != "" && number >= limit {
		return fmt.Errorf("%s is not less than %s", value, s.LessThan)
	}
	if len(s.OneOf) > 0 && !slices.Contains(s.OneOf, value) {
		return fmt.Errorf("%q is none of %s", value, strings.Join(s.OneOf, ", "))
	}
	return nil
}

func number(text string) float64 {
	value, _ := strconv.ParseFloat(text, 64)
	return value
}

// validations says the same to the host.
func (s Setting) validations() []*configv1.Validation {
	var made []*configv1.Validation
	add := func(wanted bool, kind configv1.Validation_Type, value string) {
		if wanted {
			made = append(made, &configv1.Validation{Type: kind, Value: value})
		}
	}
	add(s.Required, configv1.Validation_TYPE_REQUIRED, "")
	add(s.GreaterThan != "", configv1.Validation_TYPE_GREATER_THAN, s.GreaterThan)
	add(s.LessThan != "", configv1.Validation_TYPE_LESS_THAN, s.LessThan)
	add(len(s.OneOf) > 0, configv1.Validation_TYPE_INCLUSION, strings.Join(s.OneOf, ","))
	return made
}

func parameters(declared []Setting) map[string]*configv1.Parameter {
	made := map[string]*configv1.Parameter{}
	for _, s := range declared {
		made[s.Name] = &configv1.Parameter{
			Default: s.Default, Description: s.Description, Type: s.Type, Validations: s.validations(),
		}
	}
	return made
}
