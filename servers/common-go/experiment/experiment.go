// Package experiment reads and checks the body of POST /experiments.
package experiment

import (
	"crypto/md5"
	"encoding/hex"
	"math"
	"strconv"

	"common/contract"
	"common/jsonbody"
)

const (
	maxNameChars = 200
	maxVariants  = 100
	// sumTolerance is the contract's 0.01 plus a little for the rounding of binary fractions, so that three
	// times 33.33 is valid.
	sumTolerance = 0.01 + 1e-9
)

// Experiment is the body of the request, and also the body of the answer.
type Experiment struct {
	Name     string    `json:"name"`
	Variants []Variant `json:"variants"`
}

// Variant is one arm of an experiment.
type Variant struct {
	Name string `json:"name"`
	// A missing percentage is nil, which differs from 0.
	AllocationPercent *float64 `json:"allocation_percent"`
}

// Parse returns the experiment in a body, or a refusal that names the wrong field.
func Parse(body []byte) (*Experiment, error) {
	var parsed Experiment
	if err := jsonbody.Decode(body, &parsed); err != nil {
		return nil, err
	}
	if err := parsed.validate(); err != nil {
		return nil, err
	}
	return &parsed, nil
}

func (e *Experiment) validate() error {
	if !jsonbody.HasLength(e.Name, maxNameChars) {
		return contract.BadRequest("name must have 1 to %d characters", maxNameChars)
	}
	if len(e.Variants) == 0 || len(e.Variants) > maxVariants {
		return contract.BadRequest("variants must have 1 to %d items", maxVariants)
	}
	sum := 0.0
	for index, variant := range e.Variants {
		if !jsonbody.HasLength(variant.Name, maxNameChars) {
			return contract.BadRequest("variants[%d].name must have 1 to %d characters", index, maxNameChars)
		}
		percent := variant.AllocationPercent
		if percent == nil || !(*percent >= 0 && *percent <= 100) {
			return contract.BadRequest("variants[%d].allocation_percent must be from 0 to 100", index)
		}
		sum += *percent
	}
	if math.Abs(sum-100) > sumTolerance {
		return contract.BadRequest("the allocation_percent of all variants must sum to 100")
	}
	return nil
}

// HashedName returns the lowercase hex MD5 of NAME-UNIXSECONDS.
func HashedName(name string, unixS int64) string {
	sum := md5.Sum([]byte(name + "-" + strconv.FormatInt(unixS, 10)))
	return hex.EncodeToString(sum[:])
}
