package main

import (
	"net/http"
	"strings"
	"time"

	"common/contract"
	"common/devices"
	"common/experiment"
	"common/httpserve"
	"common/stats"
	"common/store"
)

// api has the values that the handlers share.
type api struct {
	nonce    string
	counters *stats.Counters
	store    *store.Store
}

// newHandler routes by a ServeMux. By itself a ServeMux would answer a wrong method with text, so every path
// also has a pattern without a method, which takes all other methods.
func newHandler(api *api) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", api.health)
	mux.HandleFunc("GET /stats", api.stats)
	mux.HandleFunc("GET /count", api.count)
	mux.HandleFunc("POST /experiments", api.counted(createExperiment))
	mux.HandleFunc("POST /experiments/md5", api.counted(createHashedExperiment))
	mux.HandleFunc("GET /devices", api.counted(listDevices))
	mux.HandleFunc("POST /devices", api.counted(api.createDevice))
	for _, path := range []string{"/health", "/stats", "/count", "/experiments", "/experiments/md5", "/devices"} {
		mux.HandleFunc(path, api.counted(refuseMethod))
	}
	fallback := api.counted(notFound)
	mux.HandleFunc("/", fallback)
	return withoutRedirects(mux, fallback)
}

// withoutRedirects hides from the ServeMux the paths that it would redirect to their clean form, because by the
// contract these paths are unknown.
func withoutRedirects(mux *http.ServeMux, fallback http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if path := request.URL.Path; strings.Contains(path, "//") || strings.Contains(path, "/.") {
			fallback(writer, request)
			return
		}
		mux.ServeHTTP(writer, request)
	})
}

// counted is the counting middleware.
func (a *api) counted(next http.HandlerFunc) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		a.counters.CountRequest()
		next(writer, request)
	}
}

func (a *api) health(writer http.ResponseWriter, _ *http.Request) {
	ok(writer, contract.Health{Status: "ok", Server: "nethttp", Nonce: a.nonce})
}

func (a *api) stats(writer http.ResponseWriter, _ *http.Request) {
	ok(writer, a.counters.Stats(a.store.Stats()))
}

// count counts its own request, because net/http would copy the request to carry the number from a middleware
// to here.
func (a *api) count(writer http.ResponseWriter, _ *http.Request) {
	ok(writer, contract.Count(a.counters.CountRequest()))
}

func listDevices(writer http.ResponseWriter, _ *http.Request) {
	ok(writer, devices.List)
}

func notFound(writer http.ResponseWriter, _ *http.Request) {
	ok(writer, contract.NotFound)
}

func refuseMethod(writer http.ResponseWriter, _ *http.Request) {
	refuse(writer, contract.MethodNotAllowed)
}

func createExperiment(writer http.ResponseWriter, request *http.Request) {
	experiment, err := readExperiment(writer, request)
	if err != nil {
		refuse(writer, err)
		return
	}
	ok(writer, experiment)
}

func createHashedExperiment(writer http.ResponseWriter, request *http.Request) {
	parsed, err := readExperiment(writer, request)
	if err != nil {
		refuse(writer, err)
		return
	}
	parsed.Name = experiment.HashedName(parsed.Name, time.Now().Unix())
	ok(writer, parsed)
}

func (a *api) createDevice(writer http.ResponseWriter, request *http.Request) {
	body, err := httpserve.ReadBody(writer, request)
	if err != nil {
		refuse(writer, err)
		return
	}
	given, err := devices.ParseNew(body)
	if err != nil {
		refuse(writer, err)
		return
	}
	device, err := a.store.Insert(request.Context(), given.MAC, given.Firmware)
	if err != nil {
		refuse(writer, err)
		return
	}
	httpserve.WriteJSON(writer, http.StatusCreated, device)
}

func readExperiment(writer http.ResponseWriter, request *http.Request) (*experiment.Experiment, error) {
	body, err := httpserve.ReadBody(writer, request)
	if err != nil {
		return nil, err
	}
	return experiment.Parse(body)
}

func ok(writer http.ResponseWriter, body any) {
	httpserve.WriteJSON(writer, http.StatusOK, body)
}

func refuse(writer http.ResponseWriter, err error) {
	refusal := contract.RefusalOf(err)
	httpserve.WriteJSON(writer, refusal.Status, refusal)
}
