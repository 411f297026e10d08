package http1

// Classes of bytes in RFC 9110 (tokens, field values) and RFC 9112 (targets).
const (
	tokenByte = 1 << iota
	valueByte
	targetByte
	hostByte
)

var classes = classify()

func classify() (classes [256]uint8) {
	for c := range 256 {
		// Bytes above ASCII are allowed, because clients send them and not every standard forbids them.
		isVisible := c > ' ' && c != 0x7f
		if isVisible || c == ' ' || c == '\t' {
			classes[c] |= valueByte
		}
		if isVisible {
			classes[c] |= targetByte
		}
		if '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			classes[c] |= tokenByte | hostByte
		}
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		classes[c] |= tokenByte
	}
	for _, c := range []byte("!$%&'()*+,-.:;=[]_~") {
		classes[c] |= hostByte
	}
	return classes
}

func isAll(text []byte, class uint8) bool {
	for _, c := range text {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}

func isToken(text []byte) bool      { return len(text) > 0 && isAll(text, tokenByte) }
func isTarget(text []byte) bool     { return len(text) > 0 && isAll(text, targetByte) }
func isFieldValue(text []byte) bool { return isAll(text, valueByte) }

// isHost also accepts an empty host, which clients send for targets without an authority.
func isHost(text []byte) bool { return isAll(text, hostByte) }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func trimSpace(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
		text = text[1:]
	}
	for end := len(text); end > 0 && (text[end-1] == ' ' || text[end-1] == '\t'); end-- {
		text = text[:end-1]
	}
	return text
}

// equalFold tells whether the text is `lower` if its ASCII letters are made small. bytes.EqualFold would also
// take U+212A for a k.
func equalFold(text []byte, lower string) bool {
	if len(text) != len(lower) {
		return false
	}
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
