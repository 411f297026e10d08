package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// FuzzDecode checks for any bytes that decoding does not panic, that the result does not depend on
// how the bytes are split, and that net/http reads the same requests if it accepts the bytes.
func FuzzDecode(f *testing.F) {
	for _, c := range slices.Concat(targetCases, fieldCases, connectionCases, lengthCases, chunkCases) {
		f.Add([]byte(c.in), uint16(len(c.in)/2), uint16(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, first, second uint16) {
		whole := decodeAll(in)
		a := min(int(first), len(in))
		b := min(a+int(second), len(in))
		if got := decodeAll(in[:a], in[a:b], in[b:]); !slices.Equal(got, whole) {
			t.Fatalf("split at %d and %d\n got %q\nwant %q", a, b, got, whole)
		}
		if len(in) <= 1024 {
			if got := decodeAll(slices.Collect(slices.Chunk(in, 1))...); !slices.Equal(got, whole) {
				t.Fatalf("byte by byte\n got %q\nwant %q", got, whole)
			}
		}
		compareWithNetHTTP(t, in)
	})
}

func compareWithNetHTTP(t *testing.T, in []byte) {
	var decoder Decoder
	// net/http does not skip empty lines.
	rest := in
	for bytes.HasPrefix(rest, []byte("\r\n")) {
		rest = rest[2:]
	}
	reader := bufio.NewReader(bytes.NewReader(rest))
	for {
		event := NeedMore
		for used := 0; ; {
			used, event = decoder.Decode(rest)
			rest = rest[used:]
			if event != Continue {
				break
			}
		}
		if event != Complete || decoder.Request.TooLarge {
			return
		}
		theirs, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		compareRequests(t, &decoder.Request, theirs)
		if !decoder.Request.KeepAlive || bytes.HasPrefix(rest, []byte("\r\n")) {
			return
		}
	}
}

func compareRequests(t *testing.T, ours *Request, theirs *http.Request) {
	if string(ours.Method) != theirs.Method {
		t.Fatalf("method %q, net/http %q", ours.Method, theirs.Method)
	}
	path, _, _ := strings.Cut(theirs.RequestURI, "?")
	if strings.HasPrefix(path, "/") && string(ours.Path) != path {
		t.Fatalf("path %q, net/http %q", ours.Path, path)
	}
	if ours.KeepAlive == theirs.Close {
		t.Fatalf("keep-alive %t, net/http closes %t", ours.KeepAlive, theirs.Close)
	}
	if ours.HTTP10 != (theirs.ProtoMinor == 0) {
		t.Fatalf("HTTP/1.0 %t, net/http %s", ours.HTTP10, theirs.Proto)
	}
	body, err := io.ReadAll(theirs.Body)
	if err != nil {
		t.Fatalf("body %q, net/http %v", ours.Body, err)
	}
	if !bytes.Equal(ours.Body, body) {
		t.Fatalf("body %q, net/http %q", ours.Body, body)
	}
}
