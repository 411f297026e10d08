package main

import (
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

const maxBodyBytes = 64 << 10

// beforeKey holds how many requests the counting middleware saw before this one.
const beforeKey = "before"

func newRouter(nonce string, counters *counters) *gin.Engine {
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	engine.Use(gin.Recovery())

	// Registered before the counting middleware, so that it does not see them.
	engine.GET("/health", func(c *gin.Context) {
		c.JSON(http.StatusOK, health{Status: "ok", Server: "gin", Nonce: nonce})
	})
	engine.GET("/stats", func(c *gin.Context) { c.JSON(http.StatusOK, counters.stats()) })

	engine.Use(counters.countRequest)
	engine.GET("/count", count)
	engine.POST("/experiments", createExperiment)
	engine.POST("/experiments/md5", createHashedExperiment)
	engine.GET("/devices", func(c *gin.Context) { c.JSON(http.StatusOK, devices) })
	engine.NoRoute(func(c *gin.Context) {
		c.JSON(http.StatusOK, message{Code: http.StatusNotFound, Message: "not found"})
	})
	engine.NoMethod(func(c *gin.Context) {
		c.JSON(http.StatusMethodNotAllowed, apiError{"method not allowed"})
	})
	return engine
}

type health struct {
	Status string `json:"status"`
	Server string `json:"server"`
	Nonce  string `json:"nonce"`
}

type message struct {
	Code    int `json:"code"`
	Message any `json:"message"`
}

type apiError struct {
	Error string `json:"error"`
}

// count reads the number that travels with the request: the counter itself may have moved on.
func count(c *gin.Context) {
	c.JSON(http.StatusOK, message{Code: http.StatusOK, Message: c.MustGet(beforeKey)})
}

func createExperiment(c *gin.Context) {
	if experiment, ok := readExperiment(c); ok {
		c.JSON(http.StatusOK, experiment)
	}
}

func createHashedExperiment(c *gin.Context) {
	if experiment, ok := readExperiment(c); ok {
		experiment.Name = hashedName(experiment.Name, time.Now().Unix())
		c.JSON(http.StatusOK, experiment)
	}
}

// readExperiment reads and validates the body; where that fails it has answered 400 or 413 and returns false.
func readExperiment(c *gin.Context) (*experiment, bool) {
	c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, maxBodyBytes)
	body, err := c.GetRawData()
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			c.JSON(http.StatusRequestEntityTooLarge, apiError{"the body must have at most 64 KiB"})
		} else {
			c.JSON(http.StatusBadRequest, apiError{"the body cannot be read: " + err.Error()})
		}
		return nil, false
	}
	experiment, err := parseExperiment(body)
	if err != nil {
		c.JSON(http.StatusBadRequest, apiError{err.Error()})
		return nil, false
	}
	return experiment, true
}
