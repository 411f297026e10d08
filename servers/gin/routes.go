package main

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

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

func newRouter(api *api) *gin.Engine {
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	engine.Use(gin.Recovery())

	// These are registered before the counting middleware, so that it does not count them.
	engine.GET("/health", api.health)
	engine.GET("/stats", func(c *gin.Context) { c.JSON(http.StatusOK, api.counters.Stats(api.store.Stats())) })

	engine.Use(func(c *gin.Context) { c.Set(beforeKey, api.counters.CountRequest()) })
	engine.GET("/count", count)
	engine.POST("/experiments", createExperiment)
	engine.POST("/experiments/md5", createHashedExperiment)
	engine.GET("/devices", func(c *gin.Context) { c.JSON(http.StatusOK, devices.List) })
	engine.POST("/devices", api.createDevice)
	engine.NoRoute(func(c *gin.Context) { c.JSON(http.StatusOK, contract.NotFound) })
	engine.NoMethod(func(c *gin.Context) { refuse(c, contract.MethodNotAllowed) })
	return engine
}

func (a *api) health(c *gin.Context) {
	c.JSON(http.StatusOK, contract.Health{Status: "ok", Server: "gin", Nonce: a.nonce})
}

// count reads the number that is stored with the request, because the counter may have moved on.
func count(c *gin.Context) {
	c.JSON(http.StatusOK, contract.Count(c.GetUint64(beforeKey)))
}

func createExperiment(c *gin.Context) {
	experiment, err := readExperiment(c)
	if err != nil {
		refuse(c, err)
		return
	}
	c.JSON(http.StatusOK, experiment)
}

func createHashedExperiment(c *gin.Context) {
	parsed, err := readExperiment(c)
	if err != nil {
		refuse(c, err)
		return
	}
	parsed.Name = experiment.HashedName(parsed.Name, time.Now().Unix())
	c.JSON(http.StatusOK, parsed)
}

func (a *api) createDevice(c *gin.Context) {
	body, err := httpserve.ReadBody(c.Writer, c.Request)
	if err != nil {
		refuse(c, err)
		return
	}
	given, err := devices.ParseNew(body)
	if err != nil {
		refuse(c, err)
		return
	}
	device, err := a.store.Insert(c.Request.Context(), given.MAC, given.Firmware)
	if err != nil {
		refuse(c, err)
		return
	}
	c.JSON(http.StatusCreated, device)
}

func readExperiment(c *gin.Context) (*experiment.Experiment, error) {
	body, err := httpserve.ReadBody(c.Writer, c.Request)
	if err != nil {
		return nil, err
	}
	return experiment.Parse(body)
}

func refuse(c *gin.Context, err error) {
	refusal := contract.RefusalOf(err)
	c.JSON(refusal.Status, refusal)
}
