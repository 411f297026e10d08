package main

import (
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"

	"common/contract"

	"gnet-server/http1"
)

const (
	// requestTicks is the time after which a connection is closed if its client does not finish a request, or
	// stops reading answers.
	requestTicks = int64(10 * time.Second / tickInterval)
	// idleTicks is the time after which an idle connection is closed. It is much longer than any pause of a
	// trial.
	idleTicks = int64(5 * time.Minute / tickInterval)
	// lingerTicks is how long a client may take to read the answer that says why its connection ends.
	lingerTicks = int64(time.Second / tickInterval)

	// maxHeldBytes limits the bytes that a client may send behind an unanswered request. gnet never stops
	// reading, so TCP cannot hold the client back. Therefore the server closes the connection of a client that
	// sends more.
	maxHeldBytes = 1 << 20
	// maxUnsentBytes limits the answers that wait for a client to read. Above this limit, the client's next
	// requests are held.
	maxUnsentBytes = 64 << 10
	// sendBytes limits the answers that are collected for one write. If many requests come at once, the
	// answers are sent as soon as they exceed it.
	sendBytes = 32 << 10
	// retryInterval is the interval at which to check whether a client reads again, because gnet does not
	// report it.
	retryInterval = 10 * time.Millisecond

	misunderstood = "this is not a request that the server understands"
)

// phase is the state of a connection.
type phase int

const (
	// reading means that the connection waits for requests.
	reading phase = iota
	// inserting means that the connection waits for the database. Bytes that arrive are held.
	inserting
	// stalled means that the connection waits for the client to read answers. Bytes that arrive are held.
	stalled
	// closing means that the connection sends its last answer. Bytes that arrive are discarded.
	closing
	// lingering means that only the server's direction of the connection is closed. If the server closed the
	// whole connection with bytes unread, the kernel would reset it, and the client might lose the answer.
	lingering
)

// session is one connection. Only its event loop touches it.
type session struct {
	conn    gnet.Conn
	loop    *loop
	index   int // in loop.sessions
	decoder http1.Decoder
	// pending holds the bytes that have arrived and are not decoded.
	pending []byte
	phase   phase
	isGone  bool
	// lingers says that the client may still be sending when the connection ends.
	lingers bool

	// isBusy says that the client owes a request: it has sent only a part of a request, or has not yet sent its
	// first one. Then requestTicks limits the wait; otherwise idleTicks does.
	isBusy bool
	// since is the tick at which the connection began to wait.
	since int64
	// unsentBytes is the number of bytes that the client had left unread at the last check.
	unsentBytes int
}

func newSession(conn gnet.Conn, loop *loop) *session {
	return &session{conn: conn, loop: loop, isBusy: true, since: loop.tick}
}

// receive takes the bytes that the client sent. They belong to the event loop, and are valid only during the
// call.
func (s *session) receive(data []byte) gnet.Action {
	switch s.phase {
	case reading:
		if len(s.pending) == 0 {
			return s.serve(data)
		}
		s.pending = append(s.pending, data...)
		return s.serve(s.pending)
	case inserting, stalled:
		if len(s.pending)+len(data) > maxHeldBytes {
			return gnet.Close
		}
		s.pending = append(s.pending, data...)
	}
	return gnet.None
}

// serve answers every complete request, and keeps the rest.
func (s *session) serve(in []byte) gnet.Action {
	isAnswered := false
	for s.phase == reading && !s.isGone {
		used, event := s.decoder.Decode(in)
		in = in[used:]
		if event == http1.NeedMore {
			break
		}
		s.handle(event)
		isAnswered = true
		if len(s.loop.answers.out) > sendBytes {
			s.send()
		}
	}
	s.send()
	if s.isGone {
		return gnet.None
	}
	if s.phase == closing {
		s.lingers = s.lingers || len(in) > 0
		return s.finish()
	}
	s.keep(in, isAnswered)
	return gnet.None
}

func (s *session) handle(event http1.Event) {
	switch event {
	case http1.Continue:
		s.loop.answers.addContinue()
	case http1.Failed:
		s.lingers = true
		s.refuse(manner{closes: true}, &contract.Refusal{Status: s.decoder.Status, Reason: misunderstood})
	case http1.Complete:
		request := &s.decoder.Request
		s.lingers = request.TooLarge
		s.route(request)
	}
}

// answer adds one answer after the earlier ones.
func (s *session) answer(manner manner, status int, value any, fields string) {
	s.loop.answers.add(manner, status, value, fields)
	if manner.closes {
		s.phase = closing
	}
}

// keep holds on to the bytes that are not decoded; `in` may be the end of pending itself.
func (s *session) keep(in []byte, isAnswered bool) {
	if len(in) == 0 && cap(s.pending) > http1.MaxHeadBytes {
		s.pending = nil
	} else {
		s.pending = append(s.pending[:0], in...)
	}
	isBusy := len(in) > 0 || !s.decoder.IsBetweenRequests() || s.isBusy && !isAnswered
	if isAnswered || isBusy != s.isBusy {
		s.since = s.loop.tick
	}
	s.isBusy = isBusy
}

// send writes the answers collected so far. If the client does not take them, the next requests wait.
func (s *session) send() {
	answers := s.loop.answers
	if len(answers.out) == 0 {
		return
	}
	// An error closes the connection, which isGone then reports.
	_, _ = s.conn.Write(answers.out)
	answers.out = answers.out[:0]
	if !s.isGone && s.phase == reading && s.conn.OutboundBuffered() > maxUnsentBytes {
		s.phase = stalled
		s.waitForClient()
	}
}

// finish ends the connection once everything is sent.
func (s *session) finish() gnet.Action {
	if s.conn.OutboundBuffered() > 0 {
		s.waitForClient()
		return gnet.None
	}
	if !s.lingers || syscall.Shutdown(s.conn.Fd(), syscall.SHUT_WR) != nil {
		return gnet.Close
	}
	s.pending = nil
	s.phase, s.since = lingering, s.loop.tick
	return gnet.None
}

func (s *session) waitForClient() {
	s.unsentBytes, s.since = s.conn.OutboundBuffered(), s.loop.tick
	s.retryLater()
}

func (s *session) retryLater() {
	time.AfterFunc(retryInterval, func() { s.loop.run(s.retry) })
}

func (s *session) retry() {
	switch {
	case s.isGone:
	case s.phase == closing && s.conn.OutboundBuffered() > 0,
		s.phase == stalled && s.conn.OutboundBuffered() > maxUnsentBytes/2:
		s.retryLater()
	case s.phase == closing:
		s.do(s.finish())
	default:
		s.phase = reading
		s.resume()
	}
}

// resume goes on with the requests that came meanwhile.
func (s *session) resume() {
	s.since = s.loop.tick
	s.do(s.serve(s.pending))
}

// do carries out an Action outside of gnet's event handlers. Within OnOpen, OnTraffic and OnClose, gnet carries
// out the Action that the handler returns.
func (s *session) do(action gnet.Action) {
	if action == gnet.Close && !s.isGone {
		_ = s.loop.events.Close(s.conn)
	}
}

func (s *session) isIdle() bool {
	return s.phase == reading && len(s.pending) == 0 && s.decoder.IsBetweenRequests()
}

// isExpired tells whether a connection has waited too long. An insert has a deadline of its own.
func (s *session) isExpired() bool {
	age := s.loop.tick - s.since
	switch s.phase {
	case inserting:
		return false
	case lingering:
		return age > lingerTicks
	case stalled, closing:
		if unsent := s.conn.OutboundBuffered(); unsent != s.unsentBytes {
			s.unsentBytes, s.since = unsent, s.loop.tick
			return false
		}
		return age > requestTicks
	default:
		return s.isBusy && age > requestTicks || age > idleTicks
	}
}
