// Package http1 decodes HTTP/1.0 and HTTP/1.1 requests from bytes that arrive in any pieces. It does not use
// sockets.
package http1

const (
	// MaxHeadBytes is the largest size of a request's head, including the empty line at its end.
	MaxHeadBytes = 16 << 10
	// MaxBodyBytes is the largest size of a body, after its chunks are put together.
	MaxBodyBytes = 64 << 10
	// keptBodyBytes is the largest buffer for a body that an idle connection may keep.
	keptBodyBytes = 4 << 10
)

// Request is one decoded request. Its slices point into the bytes that were passed to Decode, or
// into the decoder, and are valid until the next call.
type Request struct {
	Method []byte
	// Path is the target without scheme, authority and query, as it was sent: nothing in it is unescaped.
	Path []byte
	Body []byte
	// HTTP10 says that the client speaks HTTP/1.0.
	HTTP10 bool
	// KeepAlive says that the client wants to use the connection again.
	KeepAlive bool
	// TooLarge says that the body is longer than MaxBodyBytes. The body is not read, so nothing after it can be
	// read either, and KeepAlive is false.
	TooLarge bool
}

// Event is the result of Decode.
type Event int

const (
	// NeedMore says that the request is not complete. The next call must get the unused bytes, followed by new
	// ones.
	NeedMore Event = iota
	// Continue says that the client waits for 100 Continue before it sends the body.
	Continue
	// Complete says that Request has been decoded.
	Complete
	// Failed says that the bytes are not HTTP, or a part of HTTP that this decoder does not support. Status is
	// the status of the answer, and nothing after it can be decoded.
	Failed
)

type state int

const (
	inHead state = iota
	inBody
	inChunkSize
	inChunkData
	inChunkEnd
	inTrailers
	ended
)

// Decoder is a state machine. Its zero value waits for a connection's first request.
type Decoder struct {
	Request Request
	Status  int

	state state
	head  head
	// body holds a body that came in chunks, or not in one piece with its head.
	body []byte
	// missing is the number of bytes of the body, or of the chunk, that have not arrived yet.
	missing int
	// trailerBytes is the length of the trailers so far.
	trailerBytes int
	// names keeps method and path if their bytes become invalid before the body has arrived.
	names []byte
}

// IsBetweenRequests returns whether the decoder waits for a head, and not for a part of a body.
func (d *Decoder) IsBetweenRequests() bool {
	return d.state == inHead
}

// Decode decodes at most one request, and returns how many bytes of `in` it used. The caller must pass the unused
// bytes again in the next call, followed by any new bytes. After Failed, and after a Request with KeepAlive false, there is nothing more to decode.
func (d *Decoder) Decode(in []byte) (used int, event Event) {
	started := d.state == inHead
	for {
		n, event, moved := d.step(in[used:])
		used += n
		if event == NeedMore && moved {
			continue
		}
		if started && d.state != inHead && (event == NeedMore || event == Continue) {
			d.keepNames()
		}
		return used, event
	}
}

// step runs one state; `moved` says whether the next state can run on the rest.
func (d *Decoder) step(in []byte) (used int, event Event, moved bool) {
	switch d.state {
	case inHead:
		return d.readHead(in)
	case inBody:
		return d.readBody(in)
	case inChunkSize:
		return d.readChunkSize(in)
	case inChunkData:
		return d.readChunkData(in)
	case inChunkEnd:
		return d.readChunkEnd(in)
	case inTrailers:
		return d.readTrailer(in)
	default:
		return 0, Failed, false
	}
}

func (d *Decoder) readHead(in []byte) (used int, event Event, moved bool) {
	// Some clients end a body with an empty line, which then stands before the next request line.
	for len(in) >= used+2 && in[used] == '\r' && in[used+1] == '\n' {
		used += 2
	}
	size, status := d.head.parse(in[used:])
	if status != 0 {
		return d.fail(used, status)
	}
	if size == 0 {
		return used, NeedMore, false
	}
	used += size
	d.Request = Request{
		Method: d.head.method, Path: d.head.path, HTTP10: d.head.http10, KeepAlive: d.head.keepsAlive(),
	}
	if cap(d.body) > keptBodyBytes {
		d.body = nil
	}
	d.body = d.body[:0]
	return d.beginBody(in, used)
}

// beginBody decides how the body after a head is framed.
func (d *Decoder) beginBody(in []byte, used int) (int, Event, bool) {
	switch {
	case d.head.chunked:
		d.state = inChunkSize
	case d.head.lengthBytes > MaxBodyBytes:
		return d.refuseBody(used)
	case len(in)-used >= int(d.head.lengthBytes):
		end := used + int(d.head.lengthBytes)
		d.Request.Body = in[used:end:end]
		return end, Complete, false
	default:
		d.state, d.missing = inBody, int(d.head.lengthBytes)
	}
	// A client that has already sent a part of the body does not wait.
	if d.head.expectsContinue && len(in) == used {
		return used, Continue, false
	}
	return used, NeedMore, true
}

func (d *Decoder) readBody(in []byte) (int, Event, bool) {
	used := d.take(in)
	if d.missing > 0 {
		return used, NeedMore, false
	}
	return d.complete(used)
}

// take moves bytes of the body from in to body.
func (d *Decoder) take(in []byte) int {
	n := min(d.missing, len(in))
	d.body = append(d.body, in[:n]...)
	d.missing -= n
	return n
}

func (d *Decoder) complete(used int) (int, Event, bool) {
	d.Request.Body = d.body
	d.state = inHead
	return used, Complete, false
}

func (d *Decoder) refuseBody(used int) (int, Event, bool) {
	d.Request.TooLarge = true
	d.Request.KeepAlive = false
	d.state = ended
	return used, Complete, false
}

func (d *Decoder) fail(used, status int) (int, Event, bool) {
	d.state, d.Status = ended, status
	return used, Failed, false
}

func (d *Decoder) keepNames() {
	d.names = append(append(d.names[:0], d.Request.Method...), d.Request.Path...)
	d.Request.Method = d.names[:len(d.Request.Method)]
	d.Request.Path = d.names[len(d.Request.Method):]
}
