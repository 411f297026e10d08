package main

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"common/contract"
	"common/devices"
	"common/experiment"
	"common/httpserve"
	"common/stats"
	"common/store"
)

// beforeKey is the key of the number of requests that the counting middleware saw before this one.
const beforeKey = "before"

// api has the values that the handlers share.
type api struct {
	nonce    string
	counters *stats.Counters
	store    *store.Store
}

// newRouter adds the counting middleware to a group and to the handlers of unknown paths and wrong methods, but
// not to /health and /stats.
func newRouter(api *api) *echo.Echo {
	refuseMethod := api.counted(func(*echo.Context) error { return contract.MethodNotAllowed })
	router := echo.NewWithConfig(echo.Config{
		Router: echo.NewRouter(echo.RouterConfig{
			NotFoundHandler:         api.counted(notFound),
			MethodNotAllowedHandler: refuseMethod,
			OptionsMethodHandler:    refuseMethod,
		}),
		HTTPErrorHandler: answerError,
		JSONSerializer:   compactJSON{},
		// The router's own handler answers unknown paths.
		NoGroupAutoRegister404Routes: true,
	})
	router.Use(middleware.Recover())

	router.GET("/health", api.health)
	router.GET("/stats", func(c *echo.Context) error {
		return c.JSON(http.StatusOK, api.counters.Stats(api.store.Stats()))
	})

	counted := router.Group("", api.counted)
	counted.GET("/count", count)
	counted.POST("/experiments", createExperiment)
	counted.POST("/experiments/md5", createHashedExperiment)
	counted.GET("/devices", func(c *echo.Context) error { return c.JSON(http.StatusOK, devices.List) })
	counted.POST("/devices", api.createDevice)
	return router
}

// counted is the counting middleware.
func (a *api) counted(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Set(beforeKey, a.counters.CountRequest())
		return next(c)
	}
}

func notFound(c *echo.Context) error {
	return c.JSON(http.StatusOK, contract.NotFound)
}

func (a *api) health(c *echo.Context) error {
	return c.JSON(http.StatusOK, contract.Health{Status: "ok", Server: "echo", Nonce: a.nonce})
}

// count reads the number that is stored with the request, because the counter may have moved on.
func count(c *echo.Context) error {
	return c.JSON(http.StatusOK, contract.Count(c.Get(beforeKey).(uint64)))
}

func createExperiment(c *echo.Context) error {
	experiment, err := readExperiment(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, experiment)
}

func createHashedExperiment(c *echo.Context) error {
	parsed, err := readExperiment(c)
	if err != nil {
		return err
	}
	parsed.Name = experiment.HashedName(parsed.Name, time.Now().Unix())
	return c.JSON(http.StatusOK, parsed)
}

func (a *api) createDevice(c *echo.Context) error {
	body, err := httpserve.ReadBody(c.Response(), c.Request())
	if err != nil {
		return err
	}
	given, err := devices.ParseNew(body)
	if err != nil {
		return err
	}
	device, err := a.store.Insert(c.Request().Context(), given.MAC, given.Firmware)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, device)
}

func readExperiment(c *echo.Context) (*experiment.Experiment, error) {
	body, err := httpserve.ReadBody(c.Response(), c.Request())
	if err != nil {
		return nil, err
	}
	return experiment.Parse(body)
}

// answerError is Echo's central error handler. An error after the answer has begun means that the client has
// left.
func answerError(c *echo.Context, err error) {
	if response, _ := echo.UnwrapResponse(c.Response()); response != nil && response.Committed {
		return
	}
	refusal := contract.RefusalOf(err)
	_ = c.JSON(refusal.Status, refusal)
}

// compactJSON is Echo's own serializer without the line feed that it ends a body with.
type compactJSON struct {
	echo.DefaultJSONSerializer
}

func (compactJSON) Serialize(c *echo.Context, body any, _ string) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = c.Response().Write(encoded)
	return err
}
