// Command server is the lab's HTTP contract on gnet, an event engine that knows no HTTP.
package main

import (
	"context"
	"errors"
	"os"
	"runtime"

	"github.com/panjf2000/gnet/v2"

	"common/config"
	"common/process"
	"common/store"
)

func main() {
	os.Exit(process.Run(serve))
}

func serve(stop context.Context, config config.Config) error {
	store, err := store.Open(config.Database)
	if err != nil {
		return err
	}
	server, err := newServer(config.Nonce, store)
	if err != nil {
		return err
	}
	go func() {
		<-stop.Done()
		server.shutDown(process.Grace)
	}()
	err = gnet.Run(server, "tcp://"+config.Address.String(),
		// The option Multicore would ignore the cgroup's quota.
		gnet.WithNumEventLoop(runtime.GOMAXPROCS(0)),
		gnet.WithReuseAddr(true), // as net.Listen does; gnet listens with the kernel's full somaxconn
		gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithTicker(true),
		gnet.WithLogger(errorLog{}),
	)
	if err == nil && stop.Err() == nil {
		return errors.New("the engine ended")
	}
	return err
}
