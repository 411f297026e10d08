package httpserve

import "bytes"

const (
	lengthField   = "content-length:"
	encodingField = "transfer-encoding:"
)

// headScan looks for both fields in one head, in bytes that come in any pieces. It does not know where a body
// begins or ends, and need not: inside a head there is no empty line, so that a head with both is always found,
// and a body can at most make the later chunked requests of its own connection be refused.
type headScan struct {
	field       string // that the current line may yet begin with, or ""
	matched     int    // how many bytes of the field were seen
	atStart     bool   // the next byte begins a line
	hasLength   bool   // since the last empty line
	hasEncoding bool
}

// find reads the next bytes, and tells whether they complete a Transfer-Encoding, and whether the second
// of the two fields.
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

// match compares as much of the line as there is with the field, and returns the rest.
func (s *headScan) match(data []byte) []byte {
	for i, char := range data {
		// The bit makes capitals small. The other characters that it changes are in no valid field name.
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
