// Package jsonbody reads JSON bodies as strictly as the contract asks for.
package jsonbody

import (
	"encoding/json"
	"errors"
	"unicode/utf8"

	"common/contract"
)

// Decode reads the whole body into `into`, which points to a struct. It returns a refusal with status 400 that
// names the wrong field. The frameworks' own binding would accept anything after the first JSON value, and
// bytes that are not UTF-8.
func Decode(body []byte, into any) error {
	if !utf8.Valid(body) {
		return contract.BadRequest("the body is not JSON: it is not UTF-8")
	}
	if err := json.Unmarshal(body, into); err != nil {
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) && wrongType.Field != "" {
			return contract.BadRequest("%s must not be a %s", wrongType.Field, wrongType.Value)
		}
		return contract.BadRequest("the body is not a JSON object: %v", err)
	}
	return nil
}

// HasLength tells whether the text has 1 to `most` characters, counted as Unicode code points.
func HasLength(text string, most int) bool {
	return text != "" && (len(text) <= most || utf8.RuneCountInString(text) <= most)
}
