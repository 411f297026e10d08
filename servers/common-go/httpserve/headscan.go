package httpserve

import "bytes"

const (
	lengthField   = "content-length:"
	encodingField = "transfer-encoding:"
)

// headScan looks for heads with both fields, in bytes that arrive in pieces of any size. It does not need to
// know where a body begins or ends: a head has no empty line, so a head with both fields is always found. A
// body can at most cause later chunked requests of its own connection to be refused.
type headScan struct {
	field       string // with which the current line may still begin, or ""
	matched     int    // number of bytes of the field that were seen
	atStart     bool   // the next byte begins a line
	hasLength   bool   // the field was seen since the last empty line
	hasEncoding bool
}

// find reads the next bytes. It returns whether they complete a Transfer-Encoding, and whether they complete
// the second of the two fields.
func (s *headScan) find(data []byte) (encoding, both bool) {
	for len(data) > 0 {
		if s.atStart {
			s.beginLine(data[0])
		}
		if s.field != "" {
			data = s.match(data)
			encoding = encoding || s.hasEncoding
			both = both || s.hasLength && s.hasEncoding
		}
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			return encoding, both
		}
		data = data[end+1:]
		s.atStart, s.field = true, ""
	}
	return encoding, both
}

func (s *headScan) beginLine(first byte) {
	s.atStart, s.matched = false, 0
	switch first {
	case 'C', 'c':
		s.field = lengthField
	case 'T', 't':
		s.field = encodingField
	case '\r', '\n':
		s.hasLength, s.hasEncoding = false, false
	}
}

// match compares the part of the line that has arrived with the field, and returns the rest of the data.
func (s *headScan) match(data []byte) []byte {
	for i, char := range data {
		// The bit turns capitals into small letters. The other characters that it changes are in no valid field
		// name.
		if char|0x20 != s.field[s.matched] {
			s.field = ""
			return data[i:]
		}
		s.matched++
		if s.matched == len(s.field) {
			s.hasLength = s.hasLength || s.field == lengthField
			s.hasEncoding = s.hasEncoding || s.field == encodingField
			s.field = ""
			return data[i:]
		}
	}
	return nil
}
