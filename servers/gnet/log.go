package main

import (
	"fmt"
	"os"
)

// errorLog is gnet's logger. It writes errors of the engine to stderr, and drops everything else.
type errorLog struct{}

func (errorLog) Debugf(string, ...any) {}
func (errorLog) Infof(string, ...any)  {}
func (errorLog) Warnf(string, ...any)  {}

func (errorLog) Errorf(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
}

func (l errorLog) Fatalf(format string, values ...any) {
	l.Errorf(format, values...)
	os.Exit(1)
}
