package main

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

const (
	maxNameChars = 200
	maxVariants  = 100
	// sumTolerance is the contract's 0.01, and room for the rounding of binary fractions: three times 33.33 is
	// valid.
	sumTolerance = 0.01 + 1e-9
)

type experiment struct {
	Name     string    `json:"name"`
	Variants []variant `json:"variants"`
}

type variant struct {
	Name string `json:"name"`
	// A pointer tells a missing percentage from 0.
	AllocationPercent *float64 `json:"allocation_percent"`
}

// parseExperiment returns an error that names the field which is wrong. It takes the whole body: Gin's
// ShouldBindJSON would accept anything after the first JSON value, and bytes that are not UTF-8.
func parseExperiment(body []byte) (*experiment, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("the body is not JSON: it is not UTF-8")
	}
	var parsed experiment
	if err := json.Unmarshal(body, &parsed); err != nil {
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) && wrongType.Field != "" {
			return nil, fmt.Errorf("%s must not be a %s", wrongType.Field, wrongType.Value)
		}
		return nil, fmt.Errorf("the body is not a JSON object: %w", err)
	}
	if err := parsed.validate(); err != nil {
		return nil, err
	}
	return &parsed, nil
}

func (e *experiment) validate() error {
	if !hasValidLength(e.Name) {
		return fmt.Errorf("name must have 1 to %d characters", maxNameChars)
	}
	if len(e.Variants) == 0 || len(e.Variants) > maxVariants {
		return fmt.Errorf("variants must have 1 to %d items", maxVariants)
	}
	sum := 0.0
	for index, variant := range e.Variants {
		if !hasValidLength(variant.Name) {
			return fmt.Errorf("variants[%d].name must have 1 to %d characters", index, maxNameChars)
		}
		percent := variant.AllocationPercent
		if percent == nil || !(*percent >= 0 && *percent <= 100) {
			return fmt.Errorf("variants[%d].allocation_percent must be from 0 to 100", index)
		}
		sum += *percent
	}
	if math.Abs(sum-100) > sumTolerance {
		return errors.New("the allocation_percent of all variants must sum to 100")
	}
	return nil
}

func hasValidLength(name string) bool {
	return name != "" && utf8.RuneCountInString(name) <= maxNameChars
}

// hashedName returns the lowercase hex MD5 of NAME-UNIXSECONDS.
func hashedName(name string, unixS int64) string {
	sum := md5.Sum([]byte(name + "-" + strconv.FormatInt(unixS, 10)))
	return hex.EncodeToString(sum[:])
}
