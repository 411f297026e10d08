package http1

import (
	"fmt"
	"strings"
)

// decodeCase is a text, and the requests that must be decoded from it, whether it arrives in one
// piece or in several.
type decodeCase struct {
	title, in string
	want      []string
}

func answers(title, in string, want ...string) decodeCase { return decodeCase{title, in, want} }

func refused(title, in string, status int) decodeCase {
	return decodeCase{title, in, []string{fmt.Sprintf("failed %d", status)}}
}

// get returns a request with this field, or with no field if it is empty.
func get(field string) string {
	if field != "" {
		field += "\r\n"
	}
	return "GET /x HTTP/1.1\r\nHost: h\r\n" + field + "\r\n"
}

// post returns a POST request with this body, and with these fields, which describe the body.
func post(fields, body string) string {
	return "POST /x HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n\r\n" + body
}

func line(requestLine string) string { return requestLine + "\r\nHost: h\r\n\r\n" }

const (
	gotX    = `GET /x ""`
	chunked = "Transfer-Encoding: chunked"
)

var targetCases = []decodeCase{
	answers("query", line("GET /x?y=/z?a HTTP/1.1"), gotX),
	answers("escapes stay", line("GET /%78 HTTP/1.1"), `GET /%78 ""`),
	answers("two slashes", line("GET //x HTTP/1.1"), `GET //x ""`),
	answers("absolute form", line("GET http://h:80/x?y HTTP/1.1"), gotX),
	answers("absolute form without path", line("GET HTTP://h HTTP/1.1"), `GET / ""`),
	answers("absolute form with query only", line("GET https://h?x/y HTTP/1.1"), `GET / ""`),
	answers("asterisk", line("OPTIONS * HTTP/1.1"), `OPTIONS * ""`),
	answers("any token is a method", line("M-SEARCH /x HTTP/1.1"), `M-SEARCH /x ""`),
	answers("empty lines first", "\r\n\r\n"+get(""), gotX),
	refused("asterisk for GET", line("GET * HTTP/1.1"), 400),
	refused("no slash", line("GET x HTTP/1.1"), 400),
	refused("another scheme", line("GET ftp://h/x HTTP/1.1"), 400),
	refused("absolute form without host", line("GET http:///x HTTP/1.1"), 400),
	refused("tunnel", line("CONNECT h:80 HTTP/1.1"), 501),
	refused("one word", line("GARBAGE"), 400),
	refused("no version", line("GET /x"), 400),
	refused("no target", line("GET  HTTP/1.1"), 400),
	refused("two spaces", line("GET  /x HTTP/1.1"), 400),
	refused("space after the version", line("GET /x HTTP/1.1 "), 400),
	refused("space first", line(" GET /x HTTP/1.1"), 400),
	refused("tab", line("GET\t/x\tHTTP/1.1"), 400),
	refused("method that is no token", line("G(T /x HTTP/1.1"), 400),
	refused("NUL in the target", line("GET /\x00 HTTP/1.1"), 400),
	refused("DEL in the target", line("GET /\x7f HTTP/1.1"), 400),
	refused("CR in the line", line("GET /\rx HTTP/1.1"), 400),
	refused("version 1.2", line("GET /x HTTP/1.2"), 505),
	refused("version 2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
	refused("version 0.9", line("GET /x HTTP/0.9"), 505),
	refused("version in lower case", line("GET /x http/1.1"), 400),
	refused("version of three digits", line("GET /x HTTP/1.10"), 400),
	refused("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
}

var fieldCases = []decodeCase{
	answers("names in any case", "POST /x HTTP/1.1\r\nhOST:h\r\ncOnTeNt-LeNgTh:\t2 \t\r\n\r\nab", `POST /x "ab"`),
	answers("empty value", get("A:"), gotX),
	answers("colon in the value", get("A: b:c"), gotX),
	answers("bytes above ASCII", get("A: \xe9\xff"), gotX),
	answers("host with port", "GET /x HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", gotX),
	answers("empty host", "GET /x HTTP/1.1\r\nHost:\r\n\r\n", gotX),
	answers("HTTP/1.0 without host", "GET /x HTTP/1.0\r\n\r\n", `GET /x "" 1.0 close`),
	refused("no host", "GET /x HTTP/1.1\r\n\r\n", 400),
	refused("two hosts", get("Host: h"), 400),
	refused("two hosts in HTTP/1.0", "GET /x HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n", 400),
	refused("a path for a host", "GET /x HTTP/1.1\r\nHost: h/x\r\n\r\n", 400),
	refused("a list of hosts", "GET /x HTTP/1.1\r\nHost: h i\r\n\r\n", 400),
	refused("space before the colon", get("A : b"), 400),
	refused("folded line", get("A: b\r\n c"), 400),
	refused("folded with a tab", get("A: b\r\n\tc"), 400),
	refused("first line folded", "GET /x HTTP/1.1\r\n Host: h\r\n\r\n", 400),
	refused("no colon", get("A"), 400),
	refused("no name", get(": b"), 400),
	refused("name that is no token", get("A\xe9: b"), 400),
	refused("NUL in a value", get("A: b\x00"), 400),
	refused("escape in a value", get("A: \x1b[m"), 400),
	refused("CR in a value", get("A: b\rc"), 400),
	refused("bare LF", "GET /x HTTP/1.1\nHost: h\n\n", 400),
	refused("bare LF in the head", "GET /x HTTP/1.1\r\nHost: h\nA: b\r\n\r\n", 400),
	refused("bare LF at the head's end", "GET /x HTTP/1.1\r\nHost: h\r\n\n", 400),
}

var connectionCases = []decodeCase{
	answers("pipelining", get("")+post("Content-Length: 2", "ab")+get(""), gotX, `POST /x "ab"`, gotX),
	answers("close", get("Connection: close")+get(""), gotX+" close"),
	answers("close in a list", get("Connection: Foo, CLOSE ,bar")+get(""), gotX+" close"),
	answers("close in a second line", get("Connection: keep-alive\r\nConnection: close"), gotX+" close"),
	answers("close as a part of a token", get("Connection: closed, not-close"), gotX),
	answers("HTTP/1.0 closes", "GET /x HTTP/1.0\r\nConnection: foo\r\n\r\n", gotX+" 1.0 close"),
	answers("HTTP/1.0 keeps", "GET /x HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", gotX+" 1.0"),
	answers("HTTP/1.0 closes if told both", "GET /x HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", gotX+" 1.0 close"),
	refused("another expectation", post("Expect: cake\r\nContent-Length: 0", ""), 417),
	answers("another expectation in HTTP/1.0", "GET /x HTTP/1.0\r\nExpect: cake\r\n\r\n", gotX+" 1.0 close"),
	answers("half a request", get("")+"GET /x HT", gotX, "…"),
}

var lengthCases = []decodeCase{
	answers("length", post("Content-Length: 5", "abcde"), `POST /x "abcde"`),
	answers("leading zeros", post("Content-Length: 0005", "abcde"), `POST /x "abcde"`),
	answers("length 0", post("Content-Length: 0", ""), `POST /x ""`),
	answers("no length is no body", post("A: b", ""), `POST /x ""`),
	answers("GET with a body", get("Content-Length: 2")[:len(get("Content-Length: 2"))]+"ab"+get(""), `GET /x "ab"`, gotX),
	answers("HTTP/1.0 with a body", "POST /x HTTP/1.0\r\nContent-Length: 2\r\n\r\nab", `POST /x "ab" 1.0 close`),
	answers("two equal lengths", post("Content-Length: 5\r\nContent-Length: 5", "abcde"), `POST /x "abcde"`),
	answers("not all of the body", post("Content-Length: 5", "abcd"), "…"),
	refused("two lengths", post("Content-Length: 4\r\nContent-Length: 1", "abcd"), 400),
	refused("list of equal lengths", post("Content-Length: 5, 5", "abcde"), 400),
	refused("list of lengths", post("Content-Length: 5, 6", "abcde"), 400),
	refused("word", post("Content-Length: ten", ""), 400),
	refused("negative", post("Content-Length: -1", ""), 400),
	refused("plus", post("Content-Length: +1", "a"), 400),
	refused("hexadecimal", post("Content-Length: 0x1", "a"), 400),
	refused("fraction", post("Content-Length: 1.0", "a"), 400),
	refused("space inside", post("Content-Length: 1 2", "a"), 400),
	refused("underscore", post("Content-Length: 1_0", "a"), 400),
	refused("empty", post("Content-Length:", ""), 400),
	refused("2^63", post("Content-Length: 9223372036854775808", ""), 400),
	refused("2^64+5", post("Content-Length: 18446744073709551621", "abcde"), 400),
}

var chunkCases = []decodeCase{
	answers("chunks", post(chunked, "2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n")+get(""), `POST /x "abcde"`, gotX),
	answers("no chunks", post(chunked, "0\r\n\r\n"), `POST /x ""`),
	answers("any case", post("transfer-encoding: CHUNKED", "A\r\n0123456789\r\n0\r\n\r\n"), `POST /x "0123456789"`),
	answers("extensions", post(chunked, "2;a=b;c=\"d;e\"\r\nab\r\n0;f\r\n\r\n"), `POST /x "ab"`),
	answers("leading zeros", post(chunked, "0002\r\nab\r\n000\r\n\r\n"), `POST /x "ab"`),
	answers("CRLF inside", post(chunked, "4\r\n\r\n\r\n\r\n0\r\n\r\n"), `POST /x "\r\n\r\n"`),
	answers("trailers", post(chunked, "1\r\na\r\n0\r\nA: b\r\nContent-Length: 9\r\n\r\n")+get(""), `POST /x "a"`, gotX),
	answers("chunked GET", get(chunked)+"1\r\na\r\n0\r\n\r\n", `GET /x "a"`),
	answers("not all chunks", post(chunked, "1\r\na\r\n0\r\n"), "…"),
	refused("with a length", post(chunked+"\r\nContent-Length: 5", "0\r\n\r\n"), 400),
	refused("after a length", post("Content-Length: 5\r\n"+chunked, "0\r\n\r\n"), 400),
	refused("unknown coding with a length", post("Transfer-Encoding: gzip\r\nContent-Length: 5", "abcde"), 400),
	refused("in HTTP/1.0", "POST /x HTTP/1.0\r\n"+chunked+"\r\n\r\n0\r\n\r\n", 400),
	refused("twice", post(chunked+"\r\n"+chunked, "0\r\n\r\n"), 400),
	refused("gzip first", post("Transfer-Encoding: gzip, chunked", "0\r\n\r\n"), 501),
	refused("gzip", post("Transfer-Encoding: gzip", ""), 501),
	refused("identity", post("Transfer-Encoding: identity", ""), 501),
	refused("empty coding", post("Transfer-Encoding:", ""), 501),
	refused("Kelvin sign for k", post("Transfer-Encoding: chun\u212aed", "0\r\n\r\n"), 501),
	refused("vertical tab", post("Transfer-Encoding: \vchunked", "0\r\n\r\n"), 400),
	refused("no digits", post(chunked, "zz\r\n{}\r\n0\r\n\r\n"), 400),
	refused("empty size", post(chunked, "\r\n\r\n"), 400),
	refused("negative size", post(chunked, "-1\r\n"), 400),
	refused("0x", post(chunked, "0x2\r\nab\r\n0\r\n\r\n"), 400),
	refused("space after the size", post(chunked, "2 \r\nab\r\n0\r\n\r\n"), 400),
	refused("bare LF after the size", post(chunked, "2\nab\r\n0\r\n\r\n"), 400),
	refused("bare LF after the data", post(chunked, "2\r\nab\n0\r\n\r\n"), 400),
	refused("chunk longer than said", post(chunked, "2\r\nabc\r\n0\r\n\r\n"), 400),
	refused("CR in an extension", post(chunked, "2;a\rb\r\nab\r\n0\r\n\r\n"), 400),
	refused("17 digits", post(chunked, "10000000000000000\r\n"), 400),
	refused("malformed trailer", post(chunked, "0\r\nA : b\r\n\r\n"), 400),
	refused("folded trailer", post(chunked, "0\r\nA: b\r\n c\r\n\r\n"), 400),
	answers("64 bits", post(chunked, "ffffffffffffffff\r\n"), `POST /x "" close too large`),
}

// headOf returns a head of exactly that size.
func headOf(sizeBytes int) string {
	return get("A: " + strings.Repeat("b", sizeBytes-len(get("A: "))))
}

var limitCases = []decodeCase{
	answers("longest head", headOf(MaxHeadBytes)+get(""), gotX, gotX),
	refused("head too long", headOf(MaxHeadBytes+1), 431),
	refused("head of many lines", "GET /x HTTP/1.1\r\nHost: h\r\n"+strings.Repeat("A: b\r\n", MaxHeadBytes/6), 431),
	refused("line without end", strings.Repeat("x", MaxHeadBytes+1), 431),
	answers("longest body", post("Content-Length: 65536", strings.Repeat("a", MaxBodyBytes)),
		fmt.Sprintf("POST /x %q", strings.Repeat("a", MaxBodyBytes))),
	answers("body too long", post("Content-Length: 65537", "a"), `POST /x "" close too large`),
	answers("longest chunk", post(chunked, "10000\r\n"+strings.Repeat("a", MaxBodyBytes)+"\r\n0\r\n\r\n"),
		fmt.Sprintf("POST /x %q", strings.Repeat("a", MaxBodyBytes))),
	answers("chunks too long", post(chunked, "10000\r\n"+strings.Repeat("a", MaxBodyBytes)+"\r\n1\r\na"),
		`POST /x "" close too large`),
	refused("extensions too long", post(chunked, "1;"+strings.Repeat("a", maxChunkLineBytes)), 400),
	refused("trailers too long", post(chunked, "0\r\n"+strings.Repeat("A: b\r\n", maxTrailerBytes/6+1)), 431),
}
