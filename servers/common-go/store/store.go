// Package store inserts devices into PostgreSQL over a pool of connections (pgx's pgxpool).
package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"common/contract"
	"common/stats"
)

const (
	// limit is the longest time for one insert: waiting for a connection, connecting, and the statement. Of the
	// contract's 5 s, 200 ms are left for the answer.
	limit = 4800 * time.Millisecond
	// createdAtLayout always has six decimals of a second, as many as PostgreSQL keeps.
	createdAtLayout = "2006-01-02T15:04:05.000000Z"
	// insertDevice is prepared by pgx's statement cache when a connection first executes it.
	insertDevice = "INSERT INTO devices (uuid, mac, firmware, created_at) VALUES ($1, $2, $3, $4) RETURNING id"
)

// Device is a row of the table, and the body of the answer to POST /devices.
type Device struct {
	ID        int64  `json:"id"`
	UUID      string `json:"uuid"`
	MAC       string `json:"mac"`
	Firmware  string `json:"firmware"`
	CreatedAt string `json:"created_at"`
}

// Store is safe for use by many goroutines.
type Store struct {
	pool    *pgxpool.Pool // nil without a database
	waiting atomic.Int64
}

// Open returns a store that connects on demand; without a config it refuses every insert. Nothing closes it: its
// connections end with the process.
func Open(config *pgxpool.Config) (*Store, error) {
	if config == nil {
		return &Store{}, nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("the pool of database connections cannot be made: %w", err)
	}
	return &Store{pool: pool}, nil
}

// Insert adds a device and returns it, or a refusal with status 503 after at most 5 s. It never repeats a
// statement, because the first may have been executed although its answer is lost.
func (s *Store) Insert(ctx context.Context, mac, firmware string) (Device, error) {
	if s.pool == nil {
		return Device{}, contract.Unavailable("there is no database: DATABASE_URL is not set")
	}
	// If a client leaves, its insert is completed nevertheless. To end the insert, pgx would have to
	// close the connection, so that at the end of a load all connections in use would be closed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	conn, err := s.acquire(ctx)
	if err != nil {
		return Device{}, refusal(err)
	}
	defer conn.Release()

	uuid := randomUUID()
	createdAt := time.Now().UTC().Truncate(time.Microsecond)
	var id int64
	if err := conn.QueryRow(ctx, insertDevice, uuid, mac, firmware, createdAt).Scan(&id); err != nil {
		hastenClosing(conn.Conn().PgConn())
		return Device{}, refusal(err)
	}
	return Device{id, uuid.String(), mac, firmware, createdAt.Format(createdAtLayout)}, nil
}

func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	return s.pool.Acquire(ctx)
}

// Stats returns nil without a database.
func (s *Store) Stats() *stats.Pool {
	if s.pool == nil {
		return nil
	}
	now := s.pool.Stat()
	return &stats.Pool{
		Size: now.MaxConns(), InUse: now.AcquiredConns(), Idle: now.IdleConns(), Waiting: s.waiting.Load(),
	}
}

// refusal says what failed without pgx's own text, because that text names the database's user and address.
func refusal(err error) error {
	var told *pgconn.PgError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return contract.Unavailable("the database did not answer within 5 s")
	case errors.As(err, &told):
		return contract.Unavailable("the database refused: %s (SQLSTATE %s)", told.Message, told.Code)
	default:
		return contract.Unavailable("the connection to the database failed")
	}
}

// randomUUID returns a UUID of version 4 (RFC 9562, section 5.4).
func randomUUID() pgtype.UUID {
	uuid := pgtype.UUID{Valid: true}
	rand.Read(uuid.Bytes[:]) // never fails
	uuid.Bytes[6] = uuid.Bytes[6]&0x0f | 0x40
	uuid.Bytes[8] = uuid.Bytes[8]&0x3f | 0x80
	return uuid
}
