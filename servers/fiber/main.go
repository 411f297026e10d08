// Command server implements the lab's HTTP contract with Fiber, written the way Fiber's users write it.
package main

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/gofiber/fiber/v3"

	"common/config"
	"common/process"
	"common/stats"
	"common/store"
)

func main() {
	os.Exit(process.Run(serve))
}

// serve serves until stop is done. It then closes idle connections, waits for requests in flight, and cuts off
// those that take longer than the grace period.
func serve(stop context.Context, config config.Config) error {
	store, err := store.Open(config.Database)
	if err != nil {
		return err
	}
	// Go listens with the kernel's full somaxconn and sets TCP_NODELAY on every connection.
	listener, err := net.Listen("tcp", config.Address.String())
	if err != nil {
		return err
	}
	api := &api{nonce: config.Nonce, counters: &stats.Counters{}, store: store}
	app := newApp(api)
	failed := make(chan error, 1)
	go func() {
		counting := stats.Listener{Listener: listener, Counters: api.counters}
		failed <- app.Listener(counting, fiber.ListenConfig{DisableStartupMessage: true})
	}()

	select {
	case err := <-failed:
		return err
	case <-stop.Done():
	}
	err = app.ShutdownWithTimeout(process.Grace)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // the end of the process cuts off the rest
	}
	return err
}
