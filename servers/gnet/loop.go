package main

import (
	"context"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// tickInterval is the interval at which a loop looks for connections that have waited too long. The Date of an
// answer may be as old as this, because the loop sets it once per tick.
const tickInterval = 500 * time.Millisecond

// loop is the state that the connections of one event loop share. Only that event loop uses it.
type loop struct {
	server   *server
	events   gnet.EventLoop
	answers  *answers
	sessions []*session
	// tick is the number of intervals so far. A connection notes the tick at which it begins to wait, so that it
	// need not read a clock.
	tick int64
}

func newLoop(server *server, events gnet.EventLoop) *loop {
	return &loop{server: server, events: events, answers: newAnswers()}
}

// run makes the event loop call `do` soon. It ignores the error of Execute, which means only that the event loop
// and its connections have ended.
func (l *loop) run(do func()) {
	_ = l.events.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		do()
		return nil
	}))
}

func (l *loop) add(s *session) {
	s.index = len(l.sessions)
	l.sessions = append(l.sessions, s)
}

func (l *loop) remove(s *session) {
	last := l.sessions[len(l.sessions)-1]
	last.index = s.index
	l.sessions[s.index] = last
	l.sessions[len(l.sessions)-1] = nil
	l.sessions = l.sessions[:len(l.sessions)-1]
}

func (l *loop) onTick() {
	l.tick++
	l.answers.setDate(time.Now())
	l.closeWhere((*session).isExpired)
}

func (l *loop) closeWhere(matches func(*session) bool) {
	// The sessions are visited from the end, because closing one moves the last one, which was visited already,
	// into its place.
	for i := len(l.sessions) - 1; i >= 0; i-- {
		if s := l.sessions[i]; matches(s) {
			s.do(gnet.Close)
		}
	}
}
