package main

import (
	"context"
	"net/http"

	"common/contract"
	"common/devices"
	"common/store"
)

// createDevice inserts on a goroutine of its own, so that the event loop can serve other connections. This
// connection decodes no further request until the insert is answered. Therefore its answers keep their order, and
// it has at most one insert at a time.
func createDevice(s *session, e exchange) {
	if e.TooLarge {
		s.refuse(e.manner, contract.BodyTooLarge)
		return
	}
	device, err := devices.ParseNew(e.Body)
	if err != nil {
		s.refuse(e.manner, err)
		return
	}
	s.phase = inserting
	go func() {
		inserted, err := s.loop.server.store.Insert(context.Background(), device.MAC, device.Firmware)
		s.loop.run(func() { s.inserted(e.manner, &inserted, err) })
	}()
}

// inserted is called on the event loop after an insert has ended. It sends the answer, unless the client has
// left, and then serves the requests that arrived meanwhile.
func (s *session) inserted(manner manner, device *store.Device, err error) {
	if s.isGone {
		return
	}
	s.phase = reading
	// If the server was stopped meanwhile, this is the last answer.
	manner.closes = manner.closes || s.loop.server.isStopping.Load()
	if err != nil {
		s.refuse(manner, err)
	} else {
		s.answer(manner, http.StatusCreated, device, "")
	}
	s.resume()
}
