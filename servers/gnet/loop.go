package main

import (
	"context"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// tickInterval is how often a loop looks for connections that waited too long, and how old the time of an answer's
// Date may be.
const tickInterval = 500 * time.Millisecond

// loop is what the connections of one event loop share. Only that loop touches it.
type loop struct {
	server   *server
	events   gnet.EventLoop
	answers  *answers
	sessions []*session
	// tick counts intervals: connections remember when they began to wait without reading a clock.
	tick int64
}

func newLoop(server *server, events gnet.EventLoop) *loop {
	return &loop{server: server, events: events, answers: newAnswers()}
}

// run lets the event loop do something soon. The only error is that the loop has ended, and with it its connections.
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
	// From the end: closing puts the last one, which was looked at already, into the gap.
	for i := len(l.sessions) - 1; i >= 0; i-- {
		if s := l.sessions[i]; matches(s) {
			s.do(gnet.Close)
		}
	}
}
