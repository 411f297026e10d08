// Command server is the lab's HTTP contract on Gin, written the way Gin's users write it.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	// grace is how long requests in flight may take after SIGTERM; the contract ends everything after 2 s.
	grace = 1500 * time.Millisecond
	// headerTimeout ends connections that never finish a request's header.
	headerTimeout = 10 * time.Second
	// idleTimeout ends kept connections that nobody uses, far beyond any trial's pauses.
	idleTimeout = 5 * time.Minute
)

func main() {
	os.Exit(run())
}

// run serves until SIGTERM or SIGINT and returns the exit code. The Go runtime sizes GOMAXPROCS by the CPU
// affinity and the cgroup's quota, and raises the limit of open files, by itself.
func run() int {
	given := os.Getenv("ADDR")
	address, err := netip.ParseAddrPort(given)
	if err != nil {
		fmt.Fprintf(os.Stderr, "ADDR must be IP:PORT, such as 127.0.0.1:8080, but it is %q.\n", given)
		return 2
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()

	// Go listens with the kernel's full somaxconn and sets TCP_NODELAY on every connection.
	listener, err := net.Listen("tcp", address.String())
	if err != nil {
		fmt.Fprintf(os.Stderr, "The server cannot serve on %s: %v.\n", address, err)
		return 1
	}

	gin.SetMode(gin.ReleaseMode)
	counters := &counters{}
	server := &http.Server{
		Handler:           newRouter(os.Getenv("LAB_NONCE"), counters),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ConnState:         counters.countConnection,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()

	select {
	case err := <-failed:
		fmt.Fprintf(os.Stderr, "The server stopped serving on %s: %v.\n", address, err)
		return 1
	case <-stop.Done():
		return shutDown(server)
	}
}

// shutDown closes idle connections at once, waits for requests in flight, and cuts off what is left after grace.
func shutDown(server *http.Server) int {
	deadline, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := server.Shutdown(deadline)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "The server could not close its connections: %v.\n", err)
		return 1
	}
	return 0
}
