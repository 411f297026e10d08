package httpserve

import "testing"

const (
	get     = "GET /count HTTP/1.1\r\nHost: lab\r\n\r\n"
	sized   = "POST /x HTTP/1.1\r\nHost: lab\r\nContent-Length: 2\r\n\r\n{}"
	chunked = "POST /x HTTP/1.1\r\nHost: lab\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
)

var heads = []struct {
	title string
	data  string
	both  bool
}{
	{"ordinary requests on one connection", get + sized + chunked + sized + sized + get + chunked, false},
	{"length first", "POST / HTTP/1.1\r\nContent-Length: 3\r\nHost: lab\r\nTransfer-Encoding: chunked\r\n\r\n", true},
	{"encoding first", "POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\ncontent-length:3\r\n\r\n", true},
	{"any case, line feeds only", "POST / HTTP/1.1\ncONTENT-lENGTH: 3\nTRANSFER-encoding: chunked\n\n", true},
	{"after other requests", sized + chunked + "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: x\r\n\r\n", true},
	{"longer names", "POST / HTTP/1.1\r\nContent-Lengths: 3\r\nTransfer-Encoding: chunked\r\n\r\n", false},
	{"names inside lines", "POST / HTTP/1.1\r\nA: Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", false},
	{"cut off", "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding", false},
}

func TestHeadScan(t *testing.T) {
	for _, c := range heads {
		for size := 1; size <= len(c.data); size++ {
			scan := headScan{atStart: true}
			both := false
			for at := 0; at < len(c.data); at += size {
				_, now := scan.find([]byte(c.data[at:min(at+size, len(c.data))]))
				both = both || now
			}
			if both != c.both {
				t.Fatalf("%s, in pieces of %d bytes: found %v", c.title, size, both)
			}
		}
	}
}

// For comparison: a request costs a server on net/http some 10 microseconds.
func BenchmarkHeadScan(b *testing.B) {
	wrk := []byte("GET /count HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n")
	browser := []byte("GET /count HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) " +
		"AppleWebKit/537.36\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nConnection: keep-alive\r\nCookie: a=b\r\n\r\n")
	for name, request := range map[string][]byte{"wrk": wrk, "browser": browser, "sized": []byte(sized)} {
		b.Run(name, func(b *testing.B) {
			scan := headScan{atStart: true}
			for b.Loop() {
				scan.find(request)
			}
		})
	}
}
