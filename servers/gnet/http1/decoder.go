// Package http1 decodes HTTP/1.0 and HTTP/1.1 requests from bytes that arrive in any pieces. It knows no sockets.
package http1

const (
	// MaxHeadBytes is how long a request's head may be, its last empty line included.
	MaxHeadBytes = 16 << 10
	// MaxBodyBytes is how long a body may be, after its chunks are put together.
	MaxBodyBytes = 64 << 10
	// keptBodyBytes is how much of a body's buffer an idle connection may hold on to.
	keptBodyBytes = 4 << 10
)

// Request is one decoded request. Its slices point into what Decode was given, or into the decoder, and are valid
// until the next call.
type Request struct {
	Method []byte
	// Path is the target without scheme, authority and query, as it was sent: nothing in it is unescaped.
	Path []byte
	Body []byte
	// HTTP10 says that the client speaks HTTP/1.0.
	HTTP10 bool
	// KeepAlive says that the client wants to use the connection again.
	KeepAlive bool
	// TooLarge says that the body is longer than MaxBodyBytes. It was not read, so that nothing after this request
	// can be, and KeepAlive is false.
	TooLarge bool
}

// Event is what Decode came to.
type Event int

const (
	// NeedMore asks for the bytes that were not used, and more.
	NeedMore Event = iota
	// Continue says that the client waits for 100 Continue before it sends the body.
	Continue
	// Complete says that Request is there.
	Complete
	// Failed says that this is not HTTP, or a part of it that this decoder does not speak: Status is the answer,
	// and nothing after it can be decoded.
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
	// missing is how many bytes of the body, or of the chunk, have not come yet.
	missing int
	// trailerBytes is how long the trailers are so far.
	trailerBytes int
	// names keeps method and path when their bytes go away before the body is there.
	names []byte
}

// IsBetweenRequests tells whether no part of a request's body is awaited.
func (d *Decoder) IsBetweenRequests() bool {
	return d.state == inHead
}

// Decode uses up to one request and returns how many bytes it used. The bytes that it did not use belong in front
// of the next call's. After Failed, and after a Request with KeepAlive false, there is nothing more to decode.
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

// step runs one state. It moved if the next one can run on what is left.
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
	// Empty lines before a request line are left over from clients that end their bodies with one.
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
	// A client that has sent a part of the body already does not wait.
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
