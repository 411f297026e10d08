// Package devices has the contract's fixed list of devices, and reads the body of POST /devices.
package devices

import (
	"strings"

	"common/contract"
	"common/jsonbody"
)

const maxFieldChars = 100

// Device is an item of the fixed list.
type Device struct {
	UUID     string `json:"uuid"`
	MAC      string `json:"mac"`
	Firmware string `json:"firmware"`
}

// List is the body of GET /devices; it is serialised anew for every request.
var List = []Device{
	{"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c01", "02-00-00-00-00-01", "1.0.0"},
	{"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c02", "02-00-00-00-00-02", "1.0.4"},
	{"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c03", "02-00-00-00-00-03", "1.2.0"},
	{"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c04", "02-00-00-00-00-04", "2.0.1"},
	{"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c05", "02-00-00-00-00-05", "3.1.5"},
}

// New is the body of POST /devices.
type New struct {
	MAC      string `json:"mac"`
	Firmware string `json:"firmware"`
}

// ParseNew returns the device in a body, or a refusal that names the wrong field.
func ParseNew(body []byte) (New, error) {
	var parsed New
	if err := jsonbody.Decode(body, &parsed); err != nil {
		return New{}, err
	}
	if !isStorable(parsed.MAC) {
		return New{}, wrongField("mac")
	}
	if !isStorable(parsed.Firmware) {
		return New{}, wrongField("firmware")
	}
	return parsed, nil
}

// isStorable tells whether the text has the right length, and no U+0000, which PostgreSQL cannot store.
func isStorable(text string) bool {
	return jsonbody.HasLength(text, maxFieldChars) && strings.IndexByte(text, 0) < 0
}

func wrongField(name string) error {
	return contract.BadRequest("%s must have 1 to %d characters without U+0000", name, maxFieldChars)
}
