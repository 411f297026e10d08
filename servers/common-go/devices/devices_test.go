package devices

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseNew(t *testing.T) {
	body := func(mac, firmware string) string { return fmt.Sprintf(`{"mac":%s,"firmware":%s}`, mac, firmware) }
	text := func(character string, times int) string { return `"` + strings.Repeat(character, times) + `"` }
	cases := []struct {
		title string
		body  string
		field string // the field that the error names; empty if the body is valid
	}{
		{"shortest", body(`"m"`, `"f"`), ""},
		{"100 letters", body(text("m", 100), text("f", 100)), ""},
		{"100 wide characters", body(text("😀", 100), text("é", 100)), ""},
		{"unknown fields", `{"mac":"m","id":7,"firmware":"f"}`, ""},
		{"empty mac", body(`""`, `"f"`), "mac"},
		{"101 letters", body(text("m", 101), `"f"`), "mac"},
		{"101 wide characters", body(`"m"`, text("😀", 101)), "firmware"},
		{"no firmware", `{"mac":"m"}`, "firmware"},
		{"null", body(`null`, `"f"`), "mac"},
		{"a number", body(`"m"`, `1`), "firmware"},
		{"U+0000", body(`"m\u0000"`, `"f"`), "mac"},
		{"trailing bytes", body(`"m"`, `"f"`) + "!", "JSON"},
		{"not UTF-8", body("\"\xff\"", `"f"`), "UTF-8"},
	}
	for _, c := range cases {
		t.Run(c.title, func(t *testing.T) {
			_, err := ParseNew([]byte(c.body))
			if c.field == "" && err != nil {
				t.Fatalf("rejected: %v", err)
			}
			if c.field != "" && (err == nil || !strings.Contains(err.Error(), c.field)) {
				t.Fatalf("error %v does not name %q", err, c.field)
			}
		})
	}
}
