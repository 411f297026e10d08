package httpserve

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"

	"common/contract"
)

// net/http reads a request with both Content-Length and Transfer-Encoding by the latter, deletes the former, and
// keeps the connection; in HTTP/1.0 it ignores a Transfer-Encoding. To RFC 9112, sections 6.1 and 6.3, both are
// faulty and perhaps an attempt at request smuggling, and the connection has to end. The handlers cannot see it,
// but the connection can.

var faultyFraming = contract.BadRequest("Transfer-Encoding excludes Content-Length and HTTP/1.0")

// watchedListener accepts a *watchedConn.
type watchedListener struct {
	net.Listener // of TCP
}

func (l watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{TCPConn: conn.(*net.TCPConn), scan: headScan{atStart: true}}, nil
}

// watchedConn is read by one goroutine at a time.
type watchedConn struct {
	*net.TCPConn
	scan headScan
	// Both stay true for good: the connection ends with the request that asks.
	hasEncoding   atomic.Bool // a head with Transfer-Encoding was read
	hasTwoLengths atomic.Bool // a head with Content-Length too
}

func (c *watchedConn) Read(buffer []byte) (int, error) {
	n, err := c.TCPConn.Read(buffer)
	if encoding, both := c.scan.find(buffer[:n]); encoding {
		c.hasEncoding.Store(true)
		if both {
			c.hasTwoLengths.Store(true)
		}
	}
	return n, err
}

type connectionKey struct{}

// withConnection is an http.Server.ConnContext hook.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// refuseFaulty answers 400 and closes where the framing is faulty.
func refuseFaulty(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if isFaulty(request) {
			writer.Header().Set("Connection", "close")
			WriteJSON(writer, faultyFraming.Status, faultyFraming)
			return
		}
		next.ServeHTTP(writer, request)
	})
}

// isFaulty asks the connection only where a request is chunked or of HTTP/1.0, as no other can be faulty.
func isFaulty(request *http.Request) bool {
	isHTTP11 := request.ProtoAtLeast(1, 1)
	if isHTTP11 && len(request.TransferEncoding) == 0 {
		return false
	}
	conn := request.Context().Value(connectionKey{}).(*watchedConn)
	return conn.hasTwoLengths.Load() || !isHTTP11 && conn.hasEncoding.Load()
}
