package main

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"

	"common/store"
)

// client is the other end of a session.
type client struct {
	gnet.Conn
	t       *testing.T
	session *session
	sent    bytes.Buffer
	// unsentBytes is the number of bytes that the client pretends to leave unread.
	unsentBytes int
	isClosed    bool
	tasks       chan gnet.Runnable
}

func newClient(t *testing.T) *client {
	store, err := store.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	server, err := newServer("nonce", store)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, tasks: make(chan gnet.Runnable, 1)}
	c.session = newSession(c, newLoop(server, events{client: c}))
	c.session.loop.add(c.session)
	return c
}

func (c *client) Write(data []byte) (int, error) { return c.sent.Write(data) }
func (c *client) OutboundBuffered() int          { return c.unsentBytes }
func (c *client) Fd() int                        { return -1 } // so closing for writing only fails, and the connection is closed

// events is the event loop of one client.
type events struct {
	gnet.EventLoop
	client *client
}

func (e events) Close(gnet.Conn) error {
	e.client.isClosed, e.client.session.isGone = true, true
	return nil
}

func (e events) Execute(_ context.Context, task gnet.Runnable) error {
	e.client.tasks <- task
	return nil
}

// send hands bytes to the session, in buffers that it must not keep.
func (c *client) send(data string) {
	in := []byte(data)
	c.session.do(c.session.receive(in))
	clear(in)
}

// runTask waits for a task that a goroutine or a timer gives to the loop, and runs it.
func (c *client) runTask() {
	select {
	case task := <-c.tasks:
		_ = task.Run(context.Background())
	case <-time.After(5 * time.Second):
		c.t.Fatal("nothing to do for the loop")
	}
}

func (c *client) tick(times int64) {
	for range times {
		c.session.loop.onTick()
	}
}

var statusLine = regexp.MustCompile(`HTTP/1\.1 (\d+)`)

// statuses returns the statuses of all answers so far.
func (c *client) statuses() string {
	var found []string
	for _, match := range statusLine.FindAllStringSubmatch(c.sent.String(), -1) {
		found = append(found, match[1])
	}
	return strings.Join(found, " ")
}

func (c *client) expect(statuses string, isClosed bool) {
	c.t.Helper()
	if got := c.statuses(); got != statuses || c.isClosed != isClosed {
		c.t.Fatalf("got %q, closed %t; want %q, %t\n%s", got, c.isClosed, statuses, isClosed, c.sent.String())
	}
}

const (
	getCountBytes = "GET /count HTTP/1.1\r\nHost: h\r\n\r\n"
	insertBytes   = "POST /devices HTTP/1.1\r\nHost: h\r\nContent-Length: 26\r\n\r\n{\"mac\":\"m\",\"firmware\":\"f\"}"
	lastBytes     = "PUT /count HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
)

func TestAnswersKeepTheirOrderBehindAnInsert(t *testing.T) {
	requests := []byte(getCountBytes + insertBytes + getCountBytes + insertBytes + lastBytes)
	for _, size := range []int{1, 7, 100, len(requests)} {
		c := newClient(t)
		for piece := range slices.Chunk(requests, size) {
			c.send(string(piece))
		}
		c.expect("200", false)
		c.runTask()
		c.expect("200 503 200", false)
		c.runTask()
		c.expect("200 503 200 503 405", true)
		if requests := c.session.loop.server.counters.Stats(nil).Requests; requests != 5 {
			t.Fatalf("counted %d", requests)
		}
	}
}

func TestAClientThatLeftGetsNoAnswer(t *testing.T) {
	c := newClient(t)
	c.send(insertBytes + getCountBytes)
	c.session.do(gnet.Close)
	c.runTask()
	c.expect("", true)
}

func TestWhatWaitsBehindAnInsertIsBounded(t *testing.T) {
	c := newClient(t)
	c.send(insertBytes)
	for held := 0; held <= maxHeldBytes && !c.isClosed; held += 64 << 10 {
		c.send(strings.Repeat("x", 64<<10))
	}
	c.expect("", true)
}

func TestRequestsWaitForAClientThatDoesNotRead(t *testing.T) {
	c := newClient(t)
	c.unsentBytes = maxUnsentBytes + 1
	c.send(getCountBytes)
	c.send(getCountBytes + lastBytes)
	c.runTask()
	c.expect("200", false)
	c.unsentBytes = 1
	c.runTask()
	// The last answer is not sent completely yet.
	c.expect("200 200 405", false)
	c.unsentBytes = 0
	c.runTask()
	c.expect("200 200 405", true)
}

func TestMalformedInputIsRefusedBehindAnswersAndEnds(t *testing.T) {
	c := newClient(t)
	c.send(getCountBytes + "GARBAGE\r\n\r\n" + getCountBytes)
	c.expect("200 400", true)
}

func TestConnectionsThatWaitTooLongEnd(t *testing.T) {
	cases := []struct {
		title, sent string
		ticks       int64
	}{
		{"never a request", "", requestTicks},
		{"half a head", getCountBytes + "GET /", requestTicks},
		{"half a body", insertBytes[:len(insertBytes)-1], requestTicks},
		{"idle", getCountBytes, idleTicks},
	}
	for _, tc := range cases {
		t.Run(tc.title, func(t *testing.T) {
			c := newClient(t)
			c.send(tc.sent)
			c.tick(tc.ticks / 2)
			c.send("")
			c.tick(tc.ticks - tc.ticks/2)
			if c.isClosed {
				t.Fatal("closed too early")
			}
			c.tick(1)
			if !c.isClosed {
				t.Fatal("still open")
			}
		})
	}
}
