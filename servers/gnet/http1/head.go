package http1

import (
	"bytes"
	"math"
	"net/http"
)

// head is what a request's head says about the request itself and about the connection.
type head struct {
	method, path []byte
	http10       bool
	hosts        int

	hasLength   bool
	lengthBytes int64
	encodings   int
	chunked     bool

	close, keepAlive bool
	expectsContinue  bool
	expectsOther     bool
}

// parse returns the head's size, 0 if the head is not complete yet, or the status that refuses it. Each line is
// judged as soon as it ends, in order, so that the result does not depend on how the bytes were split.
func (h *head) parse(in []byte) (size, status int) {
	*h = head{}
	for {
		line, used, status := cutLine(in[size:], MaxHeadBytes-size)
		if status != 0 || used == 0 {
			return 0, status
		}
		switch {
		case size == 0:
			status = h.parseRequestLine(line)
		case len(line) == 0:
			return size + used, h.check()
		default:
			status = h.parseField(line)
		}
		if status != 0 {
			return 0, status
		}
		size += used
	}
}

// cutLine returns the first line without its CRLF, and its size including the CRLF. The size is 0 if the line
// does not end yet. A line that ends with LF alone is refused, because a program between client and server may
// read it otherwise.
func cutLine(in []byte, maxBytes int) (line []byte, used, status int) {
	end := bytes.IndexByte(in, '\n')
	if end >= maxBytes || end < 0 && len(in) > maxBytes {
		return nil, 0, http.StatusRequestHeaderFieldsTooLarge
	}
	if end < 0 {
		return nil, 0, 0
	}
	if end == 0 || in[end-1] != '\r' {
		return nil, 0, http.StatusBadRequest
	}
	return in[:end-1], end + 1, 0
}

func (h *head) parseRequestLine(line []byte) (status int) {
	method, rest, _ := bytes.Cut(line, []byte{' '})
	target, version, found := bytes.Cut(rest, []byte{' '})
	if !found || !isToken(method) || !isTarget(target) {
		return http.StatusBadRequest
	}
	switch string(version) {
	case "HTTP/1.1":
	case "HTTP/1.0":
		h.http10 = true
	default:
		if isVersion(version) {
			return http.StatusHTTPVersionNotSupported
		}
		return http.StatusBadRequest
	}
	if string(method) == http.MethodConnect {
		return http.StatusNotImplemented
	}
	path, ok := pathOf(target, string(method) == http.MethodOptions)
	if !ok {
		return http.StatusBadRequest
	}
	h.method, h.path = method, path
	return 0
}

func isVersion(version []byte) bool {
	return len(version) == len("HTTP/1.1") && string(version[:5]) == "HTTP/" &&
		isDigit(version[5]) && version[6] == '.' && isDigit(version[7])
}

// pathOf accepts a target in origin form (/path?query), absolute form (http://host/path?query) or, for OPTIONS,
// asterisk form.
func pathOf(target []byte, isOptions bool) (path []byte, ok bool) {
	if isOptions && string(target) == "*" {
		return target, true
	}
	if target[0] != '/' {
		target, ok = cutScheme(target)
		start := bytes.IndexAny(target, "/?")
		if !ok || start == 0 || len(target) == 0 {
			return nil, false
		}
		if start < 0 || target[start] == '?' {
			return []byte("/"), true
		}
		target = target[start:]
	}
	path, _, _ = bytes.Cut(target, []byte{'?'})
	return path, true
}

func cutScheme(target []byte) (rest []byte, ok bool) {
	scheme, rest, ok := bytes.Cut(target, []byte("://"))
	return rest, ok && (equalFold(scheme, "http") || equalFold(scheme, "https"))
}

func (h *head) parseField(line []byte) (status int) {
	name, value, ok := cutField(line)
	if !ok {
		return http.StatusBadRequest
	}
	// The length alone rules out nearly all names that do not matter.
	switch {
	case len(name) == 4 && equalFold(name, "host"):
		h.hosts++
		ok = isHost(value)
	case len(name) == 6 && equalFold(name, "expect"):
		h.expectsContinue = equalFold(value, "100-continue")
		h.expectsOther = h.expectsOther || !h.expectsContinue
	case len(name) == 10 && equalFold(name, "connection"):
		h.parseConnection(value)
	case len(name) == 14 && equalFold(name, "content-length"):
		ok = h.parseLength(value)
	case len(name) == 17 && equalFold(name, "transfer-encoding"):
		h.encodings++
		h.chunked = equalFold(value, "chunked")
	}
	if !ok {
		return http.StatusBadRequest
	}
	return 0
}

// cutField splits a line of the head into name and value; `ok` is false if the line is invalid. The name must be
// a token, which has no spaces. Therefore a space before the colon is refused, and so is a folded line, which
// begins with a space to continue the line above.
func cutField(line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(line, []byte{':'})
	value = trimSpace(value)
	return name, value, ok && isToken(name) && isFieldValue(value)
}

func (h *head) parseConnection(value []byte) {
	for len(value) > 0 {
		var token []byte
		token, value, _ = bytes.Cut(value, []byte{','})
		token = trimSpace(token)
		h.close = h.close || equalFold(token, "close")
		h.keepAlive = h.keepAlive || equalFold(token, "keep-alive")
	}
}

// parseLength accepts only digits, and a second length only if it is equal to the first.
func (h *head) parseLength(value []byte) bool {
	var lengthBytes int64
	for _, c := range value {
		if !isDigit(c) || lengthBytes > (math.MaxInt64-9)/10 {
			return false
		}
		lengthBytes = lengthBytes*10 + int64(c-'0')
	}
	if len(value) == 0 || h.hasLength && lengthBytes != h.lengthBytes {
		return false
	}
	h.hasLength, h.lengthBytes = true, lengthBytes
	return true
}

// check makes the checks that need the whole head.
func (h *head) check() (status int) {
	isMisframed := h.encodings > 0 && (h.hasLength || h.http10 || h.encodings > 1)
	switch {
	case h.hosts > 1, h.hosts == 0 && !h.http10, isMisframed:
		return http.StatusBadRequest
	case h.encodings > 0 && !h.chunked:
		return http.StatusNotImplemented
	case h.expectsOther && !h.http10:
		return http.StatusExpectationFailed
	}
	h.expectsContinue = h.expectsContinue && !h.http10
	return 0
}

func (h *head) keepsAlive() bool {
	return !h.close && (h.keepAlive || !h.http10)
}
