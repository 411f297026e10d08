// Package httpserve has the code that the servers on net/http share: listening, timeouts, shutdown,
// and bodies.
package httpserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"common/process"
	"common/stats"
)

const (
	// headerTimeout ends connections that never finish a request's header.
	headerTimeout = 10 * time.Second
	// idleTimeout is the time after which an idle connection is closed. It is much longer than any pause of a
	// trial.
	idleTimeout = 5 * time.Minute
)

// Serve serves until stop is done. It then closes idle connections at once, waits for requests in flight, and
// cuts off those that take longer than the grace period.
func Serve(stop context.Context, address netip.AddrPort, handler http.Handler, counters *stats.Counters) error {
	// Go listens with the kernel's full somaxconn and sets TCP_NODELAY on every connection.
	listener, err := net.Listen("tcp", address.String())
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           refuseFaulty(handler),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ConnContext:       withConnection,
	}
	listener = watchedListener{stats.Listener{Listener: listener, Counters: counters}}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()

	select {
	case err := <-failed:
		return err
	case <-stop.Done():
		return shutDown(server)
	}
}

func shutDown(server *http.Server) error {
	deadline, cancel := context.WithTimeout(context.Background(), process.Grace)
	defer cancel()
	err := server.Shutdown(deadline)
	if errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return err
}
