// Package process runs a server as the contract demands: its environment, signals and exit code.
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

// Grace is the longest time for requests in flight after SIGTERM; by the contract everything must end within 2
// s.
const Grace = 1500 * time.Millisecond

// Run calls serve, and returns the exit code. serve must serve until `stop` is done (by SIGTERM or SIGINT), and
// return when the requests in flight have ended. The Go runtime itself sets GOMAXPROCS by the CPU affinity and
// the cgroup's quota, and raises the limit of open files.
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
