package main

import (
	"net"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
)

// counters count since the start.
type counters struct {
	requests    atomic.Uint64
	connections atomic.Uint64
}

// countRequest is the counting middleware.
func (s *counters) countRequest(c *gin.Context) {
	c.Set(beforeKey, s.requests.Add(1)-1)
}

// countConnection is an http.Server.ConnState hook.
func (s *counters) countConnection(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		s.connections.Add(1)
	}
}

type stats struct {
	Requests    uint64    `json:"requests"`
	Connections uint64    `json:"connections"`
	GC          gcStats   `json:"gc"`
	Pool        *struct{} `json:"pool"`
}

type gcStats struct {
	Cycles       uint64  `json:"cycles"`
	PauseTotalMS float64 `json:"pause_total_ms"`
	CPUS         float64 `json:"cpu_s"`
}

func (s *counters) stats() stats {
	return stats{Requests: s.requests.Load(), Connections: s.connections.Load(), GC: readGC()}
}

// readGC stops the world neither for the counters nor for the pauses. The runtime's estimate of its CPU time
// moves only at the end of a cycle.
func readGC() gcStats {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
	}
	metrics.Read(samples)
	var pauses debug.GCStats
	debug.ReadGCStats(&pauses)
	return gcStats{
		Cycles:       samples[0].Value.Uint64(),
		PauseTotalMS: float64(pauses.PauseTotal) / float64(time.Millisecond),
		CPUS:         samples[1].Value.Float64(),
	}
}
