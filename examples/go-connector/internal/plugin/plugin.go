// Package plugin serves a connector to the host that has started it, in both dialects of the connector protocol: the first with one
// record in a message, the second with many. A connector sees neither, nor gRPC.
package plugin

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"go-connector/internal/pb/opencdcv1"
)

// Record is what travels: a position, an operation, metadata, a key, and the payload before and after.
type Record = opencdcv1.Record

// Source is what the author of a source writes. The calls come in this order, Configure alone may be followed by Teardown. Read and
// Ack run at the same time; no method is entered twice at once. Every error ends the stream with its text, after which the host can
// only tear down and start again.
type Source interface {
	// Configure gets settings that were checked against the declared ones, with defaults.
	Configure(settings Settings) error
	// Open begins right after the position; an empty one means from the start. The context is that of this call alone.
	Open(ctx context.Context, position []byte) error
	// Read waits until there is at least one record, or the context is done. What it has returned is sent in any case.
	Read(ctx context.Context) ([]*Record, error)
	// Ack is told which records are safe: in the order in which they were read, each once.
	Ack(ctx context.Context, positions [][]byte) error
	// Teardown lets go of everything. It may come at any time, also when nothing was opened, and is the last call.
	Teardown(ctx context.Context) error
}

// Destination is what the author of a destination writes. No two of its methods run at the same time.
type Destination interface {
	Configure(settings Settings) error
	Open(ctx context.Context) error
	// Write says what became of each record, in the order of the records; nil in a place, or nil for all: it is safe. A record with an
	// error is the host's to deal with, those around it are not affected.
	Write(ctx context.Context, records []*Record) []error
	Teardown(ctx context.Context) error
}

// Lifecycle is for a source or destination that has something to do once: make a replication slot, say, and remove it.
type Lifecycle interface {
	OnCreated(ctx context.Context, config map[string]string) error
	OnUpdated(ctx context.Context, before, after map[string]string) error
	OnDeleted(ctx context.Context, config map[string]string) error
}

// Connector is everything that a host can ask of this program. Without NewSource it has no source; the same for NewDestination.
type Connector struct {
	Name, Version, Summary, Description, Author string

	SourceSettings []Setting
	NewSource      func(log hclog.Logger) Source

	DestinationSettings []Setting
	NewDestination      func(log hclog.Logger) Destination
}
