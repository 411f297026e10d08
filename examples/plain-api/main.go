// An API that knows nothing of the lab. It answers GET /items and POST /items after DELAY_MS each,
// on ADDRESS:PORT (by default ADDRESS is 127.0.0.1). If TLS_CERT and TLS_KEY name files in PEM
// form, it speaks HTTPS, and also HTTP/2 with clients that support HTTP/2.
package main

import (
	"encoding/json"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

type item struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

var last atomic.Int64

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func list(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, []item{{1, "chair"}, {2, "table"}, {3, "lamp"}})
}

func add(w http.ResponseWriter, r *http.Request) {
	var given item
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&given); err != nil || given.Name == "" {
		answer(w, http.StatusBadRequest, map[string]string{"error": "name"})
		return
	}
	given.ID = 3 + last.Add(1)
	answer(w, http.StatusCreated, given)
}

func held(delay time.Duration, handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(delay)
		handler(w, r)
	}
}

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "9000"
	}
	milliseconds, _ := strconv.Atoi(os.Getenv("DELAY_MS"))
	delay := time.Duration(milliseconds) * time.Millisecond
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items", held(delay, list))
	mux.HandleFunc("POST /items", held(delay, add))
	address := os.Getenv("ADDRESS")
	if address == "" {
		address = "127.0.0.1"
	}
	server := &http.Server{Addr: net.JoinHostPort(address, port), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	if certificate := os.Getenv("TLS_CERT"); certificate != "" {
		log.Fatal(server.ListenAndServeTLS(certificate, os.Getenv("TLS_KEY")))
	}
	log.Fatal(server.ListenAndServe())
}
