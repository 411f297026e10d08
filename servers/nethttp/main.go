// Command server implements the lab's HTTP contract with Go's net/http and its ServeMux.
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
	return httpserve.Serve(stop, config.Address, newHandler(api), api.counters)
}
