package main

import (
	"bytes"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"common/contract"
)

// fasthttp accepts heads that RFC 9112 forbids, and distinguishes capitals in values in which they do not
// matter. So this file reads the raw head.

var faultyHead = contract.BadRequest("the head is no valid HTTP/1.0 or HTTP/1.1")

var (
	connectionField = []byte("connection")
	lengthField     = []byte("content-length")
	encodingField   = []byte("transfer-encoding")
	closeOption     = []byte("close")
	chunkedCoding   = []byte("chunked")
	http10          = []byte("HTTP/1.0")
	continueValue   = []byte("100-continue")
)

// head is what the raw fields of a request say.
type head struct {
	hasLength    bool
	hasEncoding  bool
	isFaulty     bool // the head must be refused, whatever else it says
	wantsClosing bool
}

// checkHead is a middleware that answers a faulty head with 400, and closes the connection. fasthttp would keep
// the connection, although a Transfer-Encoding beside a Content-Length may be request smuggling. checkHead also
// closes the connection if the client asks for that, even if `close` is written in capitals or is one of several
// options.
func checkHead(c fiber.Ctx) error {
	header := &c.RequestCtx().Request.Header
	head := readHead(header.RawHeaders())
	isHTTP11 := header.IsHTTP11()
	if head.hasEncoding && (head.hasLength || !isHTTP11) || !isHTTP11 && !bytes.Equal(header.Protocol(), http10) {
		head.isFaulty = true
	}
	if head.isFaulty || head.wantsClosing {
		c.RequestCtx().SetConnectionClose()
	}
	if head.isFaulty {
		return faultyHead
	}
	return c.Next()
}

func readHead(raw []byte) head {
	var head head
	for len(raw) > 0 {
		line := raw
		if end := bytes.IndexByte(raw, '\n'); end >= 0 {
			line, raw = raw[:end], raw[end+1:]
		} else {
			raw = nil
		}
		if colon := bytes.IndexByte(line, ':'); colon >= 0 {
			head.add(line[:colon], bytes.TrimSpace(line[colon+1:]))
		}
	}
	return head
}

// add compares lengths first, because that rules out most names.
func (h *head) add(name, value []byte) {
	switch {
	case len(name) == len(lengthField) && bytes.EqualFold(name, lengthField):
		h.hasLength = true
	case len(name) == len(encodingField) && bytes.EqualFold(name, encodingField):
		h.hasEncoding = true
		h.isFaulty = h.isFaulty || !bytes.EqualFold(value, chunkedCoding)
	case len(name) == len(connectionField) && bytes.EqualFold(name, connectionField):
		for option := range bytes.SplitSeq(value, []byte{','}) {
			h.wantsClosing = h.wantsClosing || bytes.EqualFold(bytes.TrimSpace(option), closeOption)
		}
	case bytes.IndexByte(name, ' ') >= 0:
		h.isFaulty = true
	}
}

// correctExpect writes the value of Expect in lower case, because HTTP ignores its case but fasthttp does not. In
// HTTP/1.0, where the field has no meaning, it deletes the field. fasthttp calls this hook
// (fasthttp.Server.HeaderReceived) before it reads the body.
func correctExpect(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if value := header.Peek(fiber.HeaderExpect); len(value) > 0 {
		if !header.IsHTTP11() {
			header.Del(fiber.HeaderExpect)
		} else if bytes.EqualFold(value, continueValue) {
			header.SetBytesV(fiber.HeaderExpect, continueValue)
		}
	}
	return fasthttp.RequestConfig{}
}
