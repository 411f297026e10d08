package main

import (
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"common/contract"
	"common/devices"
	"common/experiment"
	"common/stats"
	"common/store"
)

const (
	// beforeKey is the key of the number of requests that the counting middleware saw before this one.
	beforeKey = "before"
	// readTimeout is the longest time in which a client may send a request. It includes the body, because
	// fasthttp has no separate timeout for the head.
	readTimeout = 10 * time.Second
	// idleTimeout is the time after which an idle connection is closed. It is much longer than any pause of a
	// trial.
	idleTimeout = 5 * time.Minute
	// readLimitBytes is the size of a body from which fasthttp closes the connection without reading
	// it, so that the client may lose the answer. Smaller bodies that are too large are refused by the
	// handlers. net/http reads the same number of bytes after its handlers have returned.
	readLimitBytes = 256 << 10
)

// api has the values that the handlers share.
type api struct {
	nonce    string
	counters *stats.Counters
	store    *store.Store
}

func newApp(api *api) *fiber.App {
	app := fiber.New(fiber.Config{
		StrictRouting: true,
		CaseSensitive: true,
		BodyLimit:     readLimitBytes,
		ReadTimeout:   readTimeout,
		IdleTimeout:   idleTimeout,
		ErrorHandler:  answerError,
		// Forms are not parsed: a form is not JSON, so the handler refuses it.
		DisablePreParseMultipartForm: true,
	})
	// This replaces Fiber's own handler of unreadable bytes. Fiber's handler would call the middlewares, so that
	// bytes that are not a request would be counted as one.
	app.Server().ErrorHandler = answerUnreadable
	app.Server().HeaderReceived = correctExpect
	app.Use(recover.New(), checkHead)

	// These are registered before the counting middleware, so that it does not count them.
	app.Get("/health", api.health)
	app.Get("/stats", func(c fiber.Ctx) error { return c.JSON(api.counters.Stats(api.store.Stats())) })

	app.Use(api.countRequest)
	app.Get("/count", count)
	app.Post("/experiments", createExperiment)
	app.Post("/experiments/md5", createHashedExperiment)
	app.Get("/devices", func(c fiber.Ctx) error { return c.JSON(devices.List) })
	app.Post("/devices", api.createDevice)
	return app
}

// countRequest is the counting middleware.
func (a *api) countRequest(c fiber.Ctx) error {
	c.Locals(beforeKey, a.counters.CountRequest())
	return c.Next()
}

func (a *api) health(c fiber.Ctx) error {
	return c.JSON(contract.Health{Status: "ok", Server: "fiber", Nonce: a.nonce})
}

// count reads the number that is stored with the request, because the counter may have moved on.
func count(c fiber.Ctx) error {
	return c.JSON(contract.Count(c.Locals(beforeKey).(uint64)))
}

func createExperiment(c fiber.Ctx) error {
	experiment, err := readExperiment(c)
	if err != nil {
		return err
	}
	return c.JSON(experiment)
}

func createHashedExperiment(c fiber.Ctx) error {
	parsed, err := readExperiment(c)
	if err != nil {
		return err
	}
	parsed.Name = experiment.HashedName(parsed.Name, time.Now().Unix())
	return c.JSON(parsed)
}

func (a *api) createDevice(c fiber.Ctx) error {
	body, err := readBody(c)
	if err != nil {
		return err
	}
	given, err := devices.ParseNew(body)
	if err != nil {
		return err
	}
	device, err := a.store.Insert(c.Context(), given.MAC, given.Firmware)
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(device)
}

func readExperiment(c fiber.Ctx) (*experiment.Experiment, error) {
	body, err := readBody(c)
	if err != nil {
		return nil, err
	}
	return experiment.Parse(body)
}

// readBody returns bytes whose memory fasthttp will use again. This is safe, because encoding/json
// copies the values that it keeps.
func readBody(c fiber.Ctx) ([]byte, error) {
	body := c.BodyRaw()
	if len(body) > contract.MaxBodyBytes {
		return nil, contract.BodyTooLarge
	}
	return body, nil
}
