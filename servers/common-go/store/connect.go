package store

import (
	"context"
	"errors"
	"math"
	"net"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// forLife is a time.Duration that is longer than any process lives.
const forLife = time.Duration(math.MaxInt64)

// Configure checks postgres://USER:PASSWORD@HOST:PORT/NAME and returns a pool's config. Its errors may quote the
// URL.
func Configure(databaseURL string, poolSize int32) (*pgxpool.Config, error) {
	parsed, err := url.Parse(databaseURL)
	if err != nil {
		return nil, err
	}
	isPostgres := parsed.Scheme == "postgres" || parsed.Scheme == "postgresql"
	if !isPostgres || parsed.User.Username() == "" || parsed.Hostname() == "" || len(parsed.Path) < 2 {
		return nil, errors.New("the URL lacks a part")
	}
	// By default, pgx would first try TLS.
	if parameters := parsed.Query(); !parameters.Has("sslmode") {
		parameters.Set("sslmode", "disable")
		parsed.RawQuery = parameters.Encode()
	}
	config, err := pgxpool.ParseConfig(parsed.String())
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	config.MinConns = 0
	config.MaxConnLifetime = 0 // no limit
	config.MaxConnIdleTime = forLife
	// The health check would take all idle connections out of the pool to look for connections that
	// are too old, but connections have no limit of age here.
	config.HealthCheckPeriod = forLife
	// By default, pgx pings a connection that was idle for 1 s, so some requests would execute two statements.
	// Without the ping, if the database has closed a connection meanwhile, the next request that uses this
	// connection is answered with 503.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	config.ConnConfig.ConnectTimeout = limit
	config.ConnConfig.DialFunc = boundedDial(config.ConnConfig.DialFunc)
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		return conn.PgConn().Conn().SetDeadline(time.Time{})
	}
	return config, nil
}

// boundedDial gives every connection a deadline, which AfterConnect lifts. The connections on which
// pgx asks the database to cancel a statement keep their deadline. Without it, pgx would wait 15 s
// for a database that does not answer.
func boundedDial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		deadline := time.Now().Add(limit)
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := conn.SetDeadline(deadline); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// hastenClosing limits the time that pgx takes in the background to close a failed connection, because the
// connection keeps its place in the pool until it is closed. A connection that still works is left alone.
func hastenClosing(conn *pgconn.PgConn) {
	if conn.IsClosed() {
		time.AfterFunc(limit, func() { conn.Conn().Close() })
	}
}
