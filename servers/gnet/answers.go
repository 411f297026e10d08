package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// manner says how a request must be answered.
type manner struct {
	closes bool // the connection ends after the answer
	http10 bool
	isHead bool // the answer has no body
}

// answers collects what a loop sends to one connection in one write. Its buffers are used again and again.
type answers struct {
	out      []byte
	body     bytes.Buffer
	encoder  *json.Encoder
	dateLine []byte
}

func newAnswers() *answers {
	a := &answers{}
	a.encoder = json.NewEncoder(&a.body)
	a.setDate(time.Now())
	return a
}

// setDate sets the Date of all answers up to its next call.
func (a *answers) setDate(now time.Time) {
	a.dateLine = now.UTC().AppendFormat(a.dateLine[:0], "Date: Mon, 02 Jan 2006 15:04:05 GMT\r\n")
}

// addContinue adds 100 Continue, with which the server asks for the body of a request.
func (a *answers) addContinue() {
	a.out = append(a.out, "HTTP/1.1 100 Continue\r\n\r\n"...)
}

// add adds an answer; fields are additional lines of its head.
func (a *answers) add(manner manner, status int, value any, fields string) {
	a.body.Reset()
	if err := a.encoder.Encode(value); err != nil {
		panic(err) // this server's own types can always be encoded
	}
	// The line feed with which an Encoder ends is left out.
	body := a.body.Bytes()[:a.body.Len()-1]

	out := append(a.out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, ' ')
	out = append(out, http.StatusText(status)...)
	out = append(out, "\r\n"...)
	out = append(out, a.dateLine...)
	out = append(out, "Content-Type: application/json\r\nContent-Length: "...)
	out = strconv.AppendInt(out, int64(len(body)), 10)
	out = append(out, "\r\n"...)
	out = append(out, fields...)
	if manner.closes {
		out = append(out, "Connection: close\r\n"...)
	} else if manner.http10 {
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	out = append(out, "\r\n"...)
	if !manner.isHead {
		out = append(out, body...)
	}
	a.out = out
}
