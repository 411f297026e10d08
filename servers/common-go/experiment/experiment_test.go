package experiment

import (
	"fmt"
	"strings"
	"testing"
)

func bodyOf(name string, percents ...string) []byte {
	variants := make([]string, len(percents))
	for i, percent := range percents {
		variants[i] = fmt.Sprintf(`{"name":"blue","allocation_percent":%s}`, percent)
	}
	return fmt.Appendf(nil, `{"name":%q,"variants":[%s]}`, name, strings.Join(variants, ","))
}

func repeated(percent string, times int) []string {
	percents := make([]string, times)
	for i := range percents {
		percents[i] = percent
	}
	return percents
}

func TestParse(t *testing.T) {
	cases := []struct {
		title string
		body  []byte
		field string // the field that the error names; empty if the body is valid
	}{
		{"shortest name", bodyOf("x", "100"), ""},
		{"empty name", bodyOf("", "100"), "name"},
		{"200 letters", bodyOf(strings.Repeat("x", 200), "100"), ""},
		{"201 letters", bodyOf(strings.Repeat("x", 201), "100"), "name"},
		{"200 wide characters", bodyOf(strings.Repeat("😀", 200), "100"), ""},
		{"201 wide characters", bodyOf(strings.Repeat("😀", 201), "100"), "name"},
		{"no variants", bodyOf("x"), "variants"},
		{"100 variants", bodyOf("x", repeated("1", 100)...), ""},
		{"101 variants", bodyOf("x", repeated("1", 101)...), "variants"},
		{"ends of the range", bodyOf("x", "0", "100"), ""},
		{"below the range", bodyOf("x", "-0.01", "100"), "variants[0].allocation_percent"},
		{"above the range", bodyOf("x", "100.01"), "variants[0].allocation_percent"},
		{"thirds", bodyOf("x", "33.33", "33.33", "33.33"), ""},
		{"sum too small", bodyOf("x", "50", "49.98"), "sum"},
		{"sum too large", bodyOf("x", "50", "50.02"), "sum"},
		{"missing percent", []byte(`{"name":"x","variants":[{"name":"blue"}]}`), "allocation_percent"},
		{"percent as text", bodyOf("x", `"100"`), "variants.allocation_percent"},
		{"percent as bool", bodyOf("x", "true"), "variants.allocation_percent"},
		{"array", []byte(`["x",[["blue",100]]]`), "object"},
		{"trailing bytes", append(bodyOf("x", "100"), '!'), "JSON"},
		{"not UTF-8", []byte("{\"name\":\"\xff\",\"variants\":[]}"), "UTF-8"},
	}
	for _, c := range cases {
		t.Run(c.title, func(t *testing.T) {
			_, err := Parse(c.body)
			if c.field == "" && err != nil {
				t.Fatalf("rejected: %v", err)
			}
			if c.field != "" && (err == nil || !strings.Contains(err.Error(), c.field)) {
				t.Fatalf("error %v does not name %q", err, c.field)
			}
		})
	}
}

func TestHashedNameIsThatOfMD5Sum(t *testing.T) {
	// printf new_home_page-1700000000 | md5sum
	if got := HashedName("new_home_page", 1_700_000_000); got != "8cee5114650cd4092bbf5ccb020dd8c1" {
		t.Fatal(got)
	}
}
