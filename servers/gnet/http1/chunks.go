package http1

import (
	"bytes"
	"net/http"
)

const (
	// maxChunkLineBytes is the largest length of the line that has a chunk's size and its extensions.
	maxChunkLineBytes = 1 << 10
	// maxTrailerBytes is the largest size of all trailers together.
	maxTrailerBytes = 8 << 10
	// maxSizeDigits is the number of hexadecimal digits that fit into 64 bits.
	maxSizeDigits = 16
)

func (d *Decoder) readChunkSize(in []byte) (int, Event, bool) {
	line, used, status := cutLine(in, maxChunkLineBytes)
	if status != 0 {
		return d.fail(0, http.StatusBadRequest)
	}
	if used == 0 {
		return 0, NeedMore, false
	}
	size, ok := parseChunkSize(line)
	switch {
	case !ok:
		return d.fail(0, http.StatusBadRequest)
	case size > uint64(MaxBodyBytes-len(d.body)):
		return d.refuseBody(used)
	case size == 0:
		d.state, d.trailerBytes = inTrailers, 0
	default:
		d.state, d.missing = inChunkData, int(size)
	}
	return used, NeedMore, true
}

// parseChunkSize reads hexadecimal digits up to the end or to the extensions, which are skipped.
func parseChunkSize(line []byte) (size uint64, ok bool) {
	digits, extensions := line, []byte(nil)
	if end := bytes.IndexByte(line, ';'); end >= 0 {
		digits, extensions = line[:end], line[end:]
	}
	if len(digits) == 0 || len(digits) > maxSizeDigits || !isFieldValue(extensions) {
		return 0, false
	}
	for _, c := range digits {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		size = size<<4 | uint64(c)
	}
	return size, true
}

func (d *Decoder) readChunkData(in []byte) (int, Event, bool) {
	used := d.take(in)
	if d.missing > 0 {
		return used, NeedMore, false
	}
	d.state = inChunkEnd
	return used, NeedMore, true
}

// readChunkEnd consumes the empty line that ends a chunk's data.
func (d *Decoder) readChunkEnd(in []byte) (int, Event, bool) {
	if len(in) > 0 && in[0] != '\r' || len(in) > 1 && in[1] != '\n' {
		return d.fail(0, http.StatusBadRequest)
	}
	if len(in) < 2 {
		return 0, NeedMore, false
	}
	d.state = inChunkSize
	return 2, NeedMore, true
}

// readTrailer consumes one line. Trailers are checked and skipped, because none of them may change how a
// request is read.
func (d *Decoder) readTrailer(in []byte) (int, Event, bool) {
	line, used, status := cutLine(in, maxTrailerBytes-d.trailerBytes)
	if status != 0 {
		return d.fail(0, status)
	}
	if used == 0 {
		return 0, NeedMore, false
	}
	d.trailerBytes += used
	if len(line) == 0 {
		return d.complete(used)
	}
	if _, _, ok := cutField(line); !ok {
		return d.fail(0, http.StatusBadRequest)
	}
	return used, NeedMore, true
}
