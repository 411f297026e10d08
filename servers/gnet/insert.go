package main

import (
	"context"
	"net/http"

	"common/contract"
	"common/devices"
	"common/store"
)

// createDevice inserts beside the event loop, which goes on with other connections. This connection reads no
// further request until the answer is sent, so that its answers keep their order and it has one insert at a
// time.
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

// inserted answers, unless the client has left, and goes on with the requests that came meanwhile.
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
