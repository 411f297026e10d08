// Package contract holds what the endpoints of servers/CONTRACT.md share: the bodies of answers, and refusals.
package contract

import (
	"errors"
	"fmt"
)

// MaxBodyBytes is the largest body of a request.
const MaxBodyBytes = 64 << 10

// Health is the body of GET /health.
type Health struct {
	Status string `json:"status"`
	Server string `json:"server"`
	Nonce  string `json:"nonce"`
}

// Message is the body of GET /count and of the fallback.
type Message struct {
	Code    int `json:"code"`
	Message any `json:"message"`
}

// NotFound is the fallback's body; the contract sends it with status 200.
var NotFound = Message{Code: 404, Message: "not found"}

// Count returns the body of GET /count; `before` is how many requests were counted before this one.
func Count(before uint64) Message {
	return Message{Code: 200, Message: before}
}

// Refusal is an error, with the status and the body of its answer. The statuses are plain numbers, so that a
// server without net/http does not link it.
type Refusal struct {
	Status int    `json:"-"`
	Reason string `json:"error"`
}

var (
	MethodNotAllowed = &Refusal{405, "method not allowed"}
	BodyTooLarge     = &Refusal{413, "the body must have at most 64 KiB"}
)

func (r *Refusal) Error() string { return r.Reason }

// BadRequest returns a refusal with status 400.
func BadRequest(format string, args ...any) *Refusal {
	return &Refusal{400, fmt.Sprintf(format, args...)}
}

// Unavailable returns a refusal with status 503.
func Unavailable(format string, args ...any) *Refusal {
	return &Refusal{503, fmt.Sprintf(format, args...)}
}

// RefusalOf returns err as a refusal. An err that is no refusal is a fault of the server, and gets
// status 500.
func RefusalOf(err error) *Refusal {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	return &Refusal{500, "internal error"}
}
