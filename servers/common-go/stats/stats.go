// Package stats counts requests and connections, and makes the body of GET /stats.
package stats

import (
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// Counters are counts since the server's start. The zero value is ready.
type Counters struct {
	requests    atomic.Uint64
	connections atomic.Uint64
}

// CountRequest counts a request and returns how many came before it.
func (c *Counters) CountRequest() uint64 {
	return c.requests.Add(1) - 1
}

// CountConnection counts an accepted connection.
func (c *Counters) CountConnection() {
	c.connections.Add(1)
}

// Stats is the body of GET /stats.
type Stats struct {
	Requests    uint64 `json:"requests"`
	Connections uint64 `json:"connections"`
	GC          GC     `json:"gc"`
	Pool        *Pool  `json:"pool"`
}

// GC is what the garbage collector did since the start.
type GC struct {
	Cycles       uint64  `json:"cycles"`
	PauseTotalMS float64 `json:"pause_total_ms"`
	CPUS         float64 `json:"cpu_s"`
}

// Pool is the state of the pool of database connections. Size is its limit, InUse and Idle count open
// connections, and Waiting counts requests that wait for one.
type Pool struct {
	Size    int32 `json:"size"`
	InUse   int32 `json:"in_use"`
	Idle    int32 `json:"idle"`
	Waiting int64 `json:"waiting"`
}

// Stats returns the counters now; `pool` is nil without a database.
func (c *Counters) Stats(pool *Pool) Stats {
	return Stats{Requests: c.requests.Load(), Connections: c.connections.Load(), GC: readGC(), Pool: pool}
}

// readGC does not stop the world. The runtime updates its estimate of the collector's CPU time only at the end
// of a cycle.
func readGC() GC {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
	}
	metrics.Read(samples)
	var pauses debug.GCStats
	debug.ReadGCStats(&pauses)
	return GC{
		Cycles:       samples[0].Value.Uint64(),
		PauseTotalMS: float64(pauses.PauseTotal) / float64(time.Millisecond),
		CPUS:         samples[1].Value.Float64(),
	}
}
