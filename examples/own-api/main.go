// The smallest server that the lab's campaigns can include: /health with the lab's nonce, /count
// and the fallback, on Go's standard library.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

var counted atomic.Int64

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func health(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]string{"status": "ok", "server": "own-api", "nonce": os.Getenv("LAB_NONCE")})
}

func count(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]int64{"code": 200, "message": counted.Add(1) - 1})
}

func fallback(w http.ResponseWriter, _ *http.Request) {
	counted.Add(1)
	answer(w, map[string]any{"code": 404, "message": "not found"})
}

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", health)
	mux.HandleFunc("GET /count", count)
	mux.HandleFunc("/", fallback)
	server := &http.Server{Addr: os.Getenv("ADDR"), Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		deadline, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		_ = server.Shutdown(deadline)
		os.Exit(0)
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		fmt.Fprintf(os.Stderr, "own-api cannot serve: %v.\n", err)
		os.Exit(1)
	}
	select {} // the shutdown above ends the process
}
