// Command server implements the lab's HTTP contract with Echo, written the way Echo's users write it.
package main

import (
	"context"
	"os"

	"common/config"
	"common/httpserve"
	"common/process"
	"common/stats"
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
	api := &api{nonce: config.Nonce, counters: &stats.Counters{}, store: store}
	return httpserve.Serve(stop, config.Address, newRouter(api), api.counters)
}
