package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"

	"common/contract"
	"common/stats"
	"common/store"
)

// stopInterval is the interval at which to check whether the requests in flight have ended.
const stopInterval = 5 * time.Millisecond

// server is gnet's event handler.
type server struct {
	gnet.BuiltinEventEngine

	health    contract.Health
	counters  stats.Counters
	store     *store.Store
	resources map[string]*resource

	engine gnet.Engine
	booted chan struct{}
	// maxConnections is lower than the limit of open files, because gnet exits if accept finds no free
	// descriptor. The rest is for other files, and for connections that are accepted before others are closed.
	maxConnections int64
	connections    atomic.Int64
	isStopping     atomic.Bool

	mutex sync.Mutex
	loops map[gnet.EventLoop]*loop
}

func newServer(nonce string, store *store.Store) (*server, error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("the limit of open files is unknown: %w", err)
	}
	return &server{
		health:         contract.Health{Status: "ok", Server: "gnet", Nonce: nonce},
		store:          store,
		resources:      newResources(),
		booted:         make(chan struct{}),
		maxConnections: int64(min(files.Cur, 1<<32) / 4 * 3),
		loops:          make(map[gnet.EventLoop]*loop),
	}, nil
}

func (s *server) OnBoot(engine gnet.Engine) gnet.Action {
	s.engine = engine
	close(s.booted)
	return gnet.None
}

func (s *server) OnOpen(conn gnet.Conn) ([]byte, gnet.Action) {
	s.counters.CountConnection()
	session := newSession(conn, s.loopOf(conn))
	session.loop.add(session)
	conn.SetContext(session)
	if s.connections.Add(1) > s.maxConnections || s.isStopping.Load() {
		return nil, gnet.Close
	}
	return nil, gnet.None
}

// loopOf returns the connection's loop, and makes it for the loop's first connection.
func (s *server) loopOf(conn gnet.Conn) *loop {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	events := conn.EventLoop()
	if s.loops[events] == nil {
		s.loops[events] = newLoop(s, events)
	}
	return s.loops[events]
}

func (s *server) OnTraffic(conn gnet.Conn) gnet.Action {
	// All bytes are taken, always: gnet would copy the rest, and copy it again when it is read.
	data, err := conn.Next(-1)
	if err != nil {
		return gnet.Close
	}
	return conn.Context().(*session).receive(data)
}

func (s *server) OnClose(conn gnet.Conn, _ error) gnet.Action {
	session := conn.Context().(*session)
	session.isGone = true
	session.loop.remove(session)
	s.connections.Add(-1)
	return gnet.None
}

// OnTick runs on a goroutine of its own.
func (s *server) OnTick() (time.Duration, gnet.Action) {
	s.eachLoop((*loop).onTick)
	return tickInterval, gnet.None
}

// eachLoop calls `do` for every loop that has had connections.
func (s *server) eachLoop(do func(*loop)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, loop := range s.loops {
		loop.run(func() { do(loop) })
	}
}

// shutDown closes idle connections at once, waits for requests in flight, and cuts off those that take longer
// than grace. gnet cannot stop accepting without stopping altogether, so new connections are closed as they
// open.
func (s *server) shutDown(grace time.Duration) {
	<-s.booted
	deadline, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	s.isStopping.Store(true)
	s.eachLoop(func(l *loop) { l.closeWhere((*session).isIdle) })
	for s.connections.Load() > 0 && deadline.Err() == nil {
		time.Sleep(stopInterval)
	}
	// Stop tells the engine to end. It need not wait for the end, because main does; its error says that the
	// engine has already ended.
	over, cancelled := context.WithCancel(context.Background())
	cancelled()
	_ = s.engine.Stop(over)
}
