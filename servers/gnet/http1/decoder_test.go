package http1

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// decodeAll feeds the pieces one after another, as a connection would, and describes what is decoded. A final
// "…" stands for a request that has begun but not ended.
func decodeAll(pieces ...[]byte) []string {
	var decoder Decoder
	var pending []byte
	var found []string
	for _, piece := range pieces {
		pending = append(pending, piece...)
		// A copy of exact size reveals reads beyond it. It is overwritten below, which reveals slices that
		// outlive it.
		in := bytes.Clone(pending)
		rest, ended := decodePiece(&decoder, in, &found)
		if ended {
			return found
		}
		pending = append(pending[:0], rest...)
		for i := range in {
			in[i] = '#'
		}
	}
	if len(pending) > 0 || !decoder.IsBetweenRequests() {
		found = append(found, "…")
	}
	return found
}

func decodePiece(decoder *Decoder, in []byte, found *[]string) (rest []byte, ended bool) {
	for {
		used, event := decoder.Decode(in)
		in = in[used:]
		switch event {
		case NeedMore:
			return in, false
		case Failed:
			*found = append(*found, fmt.Sprintf("failed %d", decoder.Status))
			return nil, true
		case Complete:
			*found = append(*found, describe(&decoder.Request))
			if !decoder.Request.KeepAlive {
				return nil, true
			}
		}
	}
}

func describe(request *Request) string {
	text := fmt.Sprintf("%s %s %q", request.Method, request.Path, request.Body)
	if request.HTTP10 {
		text += " 1.0"
	}
	if !request.KeepAlive {
		text += " close"
	}
	if request.TooLarge {
		text += " too large"
	}
	return text
}

func TestDecode(t *testing.T) {
	for _, c := range slices.Concat(targetCases, fieldCases, connectionCases, lengthCases, chunkCases, limitCases) {
		t.Run(c.title, func(t *testing.T) {
			in := []byte(c.in)
			if got := decodeAll(in); !slices.Equal(got, c.want) {
				t.Fatalf("%q\n got %q\nwant %q", shorten(c.in), got, c.want)
			}
			for _, size := range []int{1, 2, 3, 7, 100} {
				if len(in) > 4096 && size < 100 {
					continue
				}
				if got := decodeAll(slices.Collect(slices.Chunk(in, size))...); !slices.Equal(got, c.want) {
					t.Fatalf("%q in pieces of %d\n got %q\nwant %q", shorten(c.in), size, got, c.want)
				}
			}
		})
	}
}

func shorten(text string) string {
	return text[:min(len(text), 200)]
}

func TestContinueIsAskedForOnceAndBeforeTheBody(t *testing.T) {
	for _, framing := range []string{
		"Content-Length: 2\r\n\r\n|ab",
		"Transfer-Encoding: chunked\r\n\r\n|2\r\nab\r\n0\r\n\r\n",
	} {
		head, body, _ := strings.Cut("POST /x HTTP/1.1\r\nHost: h\r\nEXPECT: 100-Continue\r\n"+framing, "|")
		var decoder Decoder
		if used, event := decoder.Decode([]byte(head)); used != len(head) || event != Continue {
			t.Fatalf("%q: used %d, event %d", head, used, event)
		}
		if used, event := decoder.Decode(nil); used != 0 || event != NeedMore {
			t.Fatalf("no bytes: used %d, event %d", used, event)
		}
		if _, event := decoder.Decode([]byte(body)); event != Complete || describe(&decoder.Request) != `POST /x "ab"` {
			t.Fatalf("%q: event %d, %s", body, event, describe(&decoder.Request))
		}
		// A client that has already sent a part of the body does not wait.
		decoder = Decoder{}
		if _, event := decoder.Decode([]byte(head + body[:1])); event != NeedMore {
			t.Fatalf("%q: event %d", head+body[:1], event)
		}
	}
	for _, head := range []string{
		"POST /x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
		"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n",
	} {
		var decoder Decoder
		if _, event := decoder.Decode([]byte(head)); event != NeedMore {
			t.Fatalf("%q: event %d", head, event)
		}
	}
}

func TestNothingIsDecodedAfterAFailure(t *testing.T) {
	var decoder Decoder
	for range 2 {
		if used, event := decoder.Decode([]byte("GARBAGE\r\n\r\n")); used != 0 || event != Failed || decoder.Status != 400 {
			t.Fatalf("used %d, event %d, status %d", used, event, decoder.Status)
		}
	}
}

func TestDecodingAllocatesNothing(t *testing.T) {
	in := []byte("POST /x?y HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nab")
	var decoder Decoder
	if allocations := testing.AllocsPerRun(100, func() { decoder.Decode(in) }); allocations != 0 {
		t.Fatal(allocations)
	}
}
