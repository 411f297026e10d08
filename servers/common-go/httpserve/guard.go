package httpserve

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"

	"common/contract"
)

// If a request has both Content-Length and Transfer-Encoding, net/http reads it by its Transfer-Encoding,
// deletes Content-Length, and keeps the connection. In HTTP/1.0, net/http ignores a Transfer-Encoding. By RFC
// 9112, sections 6.1 and 6.3, both kinds of requests are faulty and perhaps an attempt at request smuggling,
// and the connection must end. Handlers cannot see the deleted field, but the connection can.

var faultyFraming = contract.BadRequest("Transfer-Encoding excludes Content-Length and HTTP/1.0")

// watchedListener accepts connections as *watchedConn.
type watchedListener struct {
	net.Listener // a TCP listener
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
	// Neither flag is ever reset, because the first request that is refused for either reason ends the
	// connection.
	hasEncoding   atomic.Bool // a head with Transfer-Encoding was read
	hasTwoLengths atomic.Bool // such a head also had a Content-Length
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

// refuseFaulty answers a request with faulty framing with 400, and closes its connection.
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

// isFaulty asks the connection only if a request is chunked or of HTTP/1.0, because no other request can be
// faulty.
func isFaulty(request *http.Request) bool {
	isHTTP11 := request.ProtoAtLeast(1, 1)
	if isHTTP11 && len(request.TransferEncoding) == 0 {
		return false
	}
	conn := request.Context().Value(connectionKey{}).(*watchedConn)
	return conn.hasTwoLengths.Load() || !isHTTP11 && conn.hasEncoding.Load()
}
