package main

import (
	"net/http"
	"time"

	"common/contract"
	"common/devices"
	"common/experiment"

	"gnet-server/http1"
)

// exchange is a request, and the values that are needed to answer it.
type exchange struct {
	*http1.Request
	manner manner
	// before is the number of requests that were counted before this one.
	before uint64
}

type handler func(*session, exchange)

// resource has the handlers of one path.
type resource struct {
	get, post handler
	// isUncounted is true for requests that only watch the server.
	isUncounted bool
}

func newResources() map[string]*resource {
	return map[string]*resource{
		"/health":          {get: getHealth, isUncounted: true},
		"/stats":           {get: getStats, isUncounted: true},
		"/count":           {get: getCount},
		"/experiments":     {post: createExperiment},
		"/experiments/md5": {post: createHashedExperiment},
		"/devices":         {get: getDevices, post: createDevice},
	}
}

// route counts a request and lets its resource answer it.
func (s *session) route(request *http1.Request) {
	server := s.loop.server
	e := exchange{Request: request, manner: manner{
		closes: !request.KeepAlive || server.isStopping.Load(),
		http10: request.HTTP10,
		isHead: string(request.Method) == http.MethodHead,
	}}
	resource := server.resources[string(request.Path)]
	if resource == nil || !resource.isUncounted {
		e.before = server.counters.CountRequest()
	}
	if resource == nil {
		s.answer(e.manner, http.StatusOK, &contract.NotFound, "")
	} else if handle := resource.handlerOf(request.Method); handle != nil {
		handle(s, e)
	} else {
		s.answer(e.manner, http.StatusMethodNotAllowed, contract.MethodNotAllowed, resource.allow())
	}
}

func (r *resource) handlerOf(method []byte) handler {
	switch string(method) {
	case http.MethodGet:
		return r.get
	case http.MethodPost:
		return r.post
	default:
		return nil
	}
}

func (r *resource) allow() string {
	switch {
	case r.post == nil:
		return "Allow: GET\r\n"
	case r.get == nil:
		return "Allow: POST\r\n"
	default:
		return "Allow: GET, POST\r\n"
	}
}

func getHealth(s *session, e exchange) {
	s.answer(e.manner, http.StatusOK, &s.loop.server.health, "")
}

func getStats(s *session, e exchange) {
	server := s.loop.server
	s.answer(e.manner, http.StatusOK, server.counters.Stats(server.store.Stats()), "")
}

func getCount(s *session, e exchange) {
	s.answer(e.manner, http.StatusOK, contract.Count(e.before), "")
}

func getDevices(s *session, e exchange) {
	s.answer(e.manner, http.StatusOK, &devices.List, "")
}

func createExperiment(s *session, e exchange) {
	if experiment := s.readExperiment(e); experiment != nil {
		s.answer(e.manner, http.StatusOK, experiment, "")
	}
}

func createHashedExperiment(s *session, e exchange) {
	if parsed := s.readExperiment(e); parsed != nil {
		parsed.Name = experiment.HashedName(parsed.Name, time.Now().Unix())
		s.answer(e.manner, http.StatusOK, parsed, "")
	}
}

// readExperiment returns nil if it has answered 400 or 413.
func (s *session) readExperiment(e exchange) *experiment.Experiment {
	if e.TooLarge {
		s.refuse(e.manner, contract.BodyTooLarge)
		return nil
	}
	parsed, err := experiment.Parse(e.Body)
	if err != nil {
		s.refuse(e.manner, err)
		return nil
	}
	return parsed
}

// refuse answers with the status and the sentence of an error.
func (s *session) refuse(manner manner, err error) {
	refusal := contract.RefusalOf(err)
	s.answer(manner, refusal.Status, refusal, "")
}
