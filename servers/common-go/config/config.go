// Package config reads the environment with which the lab starts a server by the contract.
package config

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"common/store"
)

const (
	defaultPoolSize = 50
	maxPoolSize     = 10_000
)

// Config is the environment, checked.
type Config struct {
	Address  netip.AddrPort
	Nonce    string
	Database *pgxpool.Config // nil without DATABASE_URL_FILE and DATABASE_URL
}

// Read returns the configuration, or an error of one sentence if the environment breaks the contract.
func Read() (Config, error) {
	given := os.Getenv("ADDR")
	address, err := netip.ParseAddrPort(given)
	if err != nil {
		return Config{}, fmt.Errorf("ADDR must be IP:PORT, such as 127.0.0.1:8080, but it is %q.", given)
	}
	poolSize, err := readPoolSize()
	if err != nil {
		return Config{}, err
	}
	config := Config{Address: address, Nonce: os.Getenv("LAB_NONCE")}
	url, err := readURL()
	if err != nil {
		return Config{}, err
	}
	if url != "" {
		// The error of a parser is not printed: parsers quote what they cannot parse, and the URL holds a
		// password.
		if config.Database, err = store.Configure(url, poolSize); err != nil {
			return Config{}, fmt.Errorf("DATABASE_URL must be postgres://USER:PASSWORD@HOST:PORT/NAME.")
		}
	}
	return config, nil
}

// readURL prefers a file, because only its owner can read the file, while anybody who may use the
// container engine can read the environment.
func readURL() (string, error) {
	path := os.Getenv("DATABASE_URL_FILE")
	if path == "" {
		return os.Getenv("DATABASE_URL"), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("DATABASE_URL_FILE must be a file that holds the URL, but it is not: %w.", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

func readPoolSize() (int32, error) {
	given := os.Getenv("DB_POOL_SIZE")
	if given == "" {
		return defaultPoolSize, nil
	}
	size, err := strconv.ParseInt(given, 10, 32)
	if err != nil || size < 1 || size > maxPoolSize {
		return 0, fmt.Errorf("DB_POOL_SIZE must be a whole number from 1 to %d, but it is %q.", maxPoolSize, given)
	}
	return int32(size), nil
}
