package main

import (
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"

	"common/contract"

	"gnet-server/http1"
)

const (
	// requestTicks ends connections that never finish a request, or never take its answer.
	requestTicks = int64(10 * time.Second / tickInterval)
	// idleTicks ends kept connections that nobody uses, far beyond any trial's pauses.
	idleTicks = int64(5 * time.Minute / tickInterval)
	// lingerTicks is how long a client may take to read why its connection ends.
	lingerTicks = int64(time.Second / tickInterval)

	// maxHeldBytes bounds the requests that wait behind one which is not answered yet. gnet always reads, so that
	// TCP cannot hold the client back: one that sends more is cut off.
	maxHeldBytes = 1 << 20
	// maxUnsentBytes is how much a client may leave unread before its next request is answered.
	maxUnsentBytes = 64 << 10
	// sendBytes is how much is collected before it is sent, if many requests come at once.
	sendBytes = 32 << 10
	// retryInterval is how often to look whether a client reads again: gnet does not tell.
	retryInterval = 10 * time.Millisecond

	misunderstood = "this is not a request that the server understands"
)

// phase is what a connection is at.
type phase int

const (
	// reading is waiting for requests.
	reading phase = iota
	// inserting is waiting for the database; what comes meanwhile is held.
	inserting
	// stalled is waiting for the client to read its answers; what comes meanwhile is held.
	stalled
	// closing is sending the last answer; what comes meanwhile is thrown away.
	closing
	// lingering has closed for writing only. Closing with bytes unread would reset the connection, and the client
	// might lose the answer.
	lingering
)

// session is one connection. Only its event loop touches it.
type session struct {
	conn    gnet.Conn
	loop    *loop
	index   int // in loop.sessions
	decoder http1.Decoder
	// pending came, and is not decoded.
	pending []byte
	phase   phase
	isGone  bool
	// lingers says that the client may still be sending when the connection ends.
	lingers bool

	// isBusy says that a request is awaited: a part of it has come, or it is the first.
	isBusy bool
	// since is the tick when the connection began to wait for what it waits for.
	since int64
	// unsentBytes is what a client left unread when it was last looked at.
	unsentBytes int
}

func newSession(conn gnet.Conn, loop *loop) *session {
	return &session{conn: conn, loop: loop, isBusy: true, since: loop.tick}
}

// receive takes what the client sent. The bytes are the event loop's: they do not outlive the call.
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

// serve answers every request that is there, and keeps the rest.
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

// answer puts one answer behind those before it.
func (s *session) answer(manner manner, status int, value any, fields string) {
	s.loop.answers.add(manner, status, value, fields)
	if manner.closes {
		s.phase = closing
	}
}

// keep holds on to what is not decoded. It may be the end of pending itself.
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

// send writes the answers collected so far. Where the client does not take them, the next requests wait.
func (s *session) send() {
	answers := s.loop.answers
	if len(answers.out) == 0 {
		return
	}
	// An error closes the connection, and isGone tells.
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

// do does for other callbacks what gnet does with the Action of its own.
func (s *session) do(action gnet.Action) {
	if action == gnet.Close && !s.isGone {
		_ = s.loop.events.Close(s.conn)
	}
}

func (s *session) isIdle() bool {
	return s.phase == reading && len(s.pending) == 0 && s.decoder.IsBetweenRequests()
}

// isExpired tells whether a connection has waited too long. An insert ends by its own deadline.
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
