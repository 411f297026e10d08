// Package process is a server's life as the contract sees it: environment, signals, exit code.
package process

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"common/config"
)

// Grace is how long requests in flight may take after SIGTERM; the contract ends everything after 2 s.
const Grace = 1500 * time.Millisecond

// Run calls serve, which serves until `stop` is done (SIGTERM or SIGINT) and what is in flight has ended, and
// returns the exit code. The Go runtime sizes GOMAXPROCS by the CPU affinity and the cgroup's quota, and raises
// the limit of open files, by itself.
func Run(serve func(stop context.Context, config config.Config) error) int {
	config, err := config.Read()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	if err := serve(stop, config); err != nil {
		fmt.Fprintf(os.Stderr, "The server cannot serve on %s: %v.\n", config.Address, err)
		return 1
	}
	return 0
}
