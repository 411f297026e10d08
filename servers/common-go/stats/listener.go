package stats

import "net"

// Listener counts the connections that it accepts.
type Listener struct {
	net.Listener
	Counters *Counters
}

func (l Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.Counters.CountConnection()
	}
	return conn, err
}
