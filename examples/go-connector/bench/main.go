// A connector for measuring, on the same plumbing: a source that makes records up and a destination that forgets them, so that what is
// left is the cost of the protocol. Driven by `python -m bench protocol` and others.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/hashicorp/go-hclog"

	"go-connector/internal/pb/opencdcv1"
	"go-connector/internal/plugin"
)

func main() {
	plugin.Serve(plugin.Connector{
		Name:        "go-bench",
		Version:     "v0.1.0",
		Summary:     "Makes records up, and forgets them.",
		Description: "For measuring the protocol alone.",
		Author:      "Penstock",
		SourceSettings: []plugin.Setting{
			{Name: "count", Description: "How many records.", Type: plugin.Int, Default: "1000", GreaterThan: "0"},
			{Name: "size", Description: "Bytes of a payload.", Type: plugin.Int, Default: "25", GreaterThan: "0"},
			{Name: "batch", Description: "Records in a message, at most.", Type: plugin.Int, Default: "1000", GreaterThan: "0"},
		},
		DestinationSettings: []plugin.Setting{
			{Name: "total", Description: "A file that gets the number of records, at the end.", Type: plugin.String},
		},
		NewSource:      func(hclog.Logger) plugin.Source { return &generator{} },
		NewDestination: func(hclog.Logger) plugin.Destination { return &forgetful{} },
	})
}

type generator struct {
	count, batch, at, acked int
	payload                 *opencdcv1.Change
}

func (g *generator) Configure(settings plugin.Settings) error {
	g.count, g.batch = settings.Int("count"), settings.Int("batch")
	raw := bytes.Repeat([]byte("x"), settings.Int("size"))
	g.payload = &opencdcv1.Change{After: &opencdcv1.Data{Data: &opencdcv1.Data_RawData{RawData: raw}}}
	return nil
}

func (g *generator) Open(_ context.Context, position []byte) error {
	if len(position) == 0 {
		return nil
	}
	at, err := strconv.Atoi(string(position))
	g.at, g.acked = at, at
	return err
}

func (g *generator) Read(ctx context.Context) ([]*plugin.Record, error) {
	if g.at >= g.count {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	records := make([]*plugin.Record, 0, g.batch)
	for len(records) < g.batch && g.at < g.count {
		g.at++
		records = append(records, &plugin.Record{
			Position: strconv.AppendInt(nil, int64(g.at), 10), Operation: opencdcv1.Operation_OPERATION_CREATE, Payload: g.payload,
		})
	}
	return records, nil
}

// Ack holds the host to the order.
func (g *generator) Ack(_ context.Context, positions [][]byte) error {
	for _, position := range positions {
		g.acked++
		if string(position) != strconv.Itoa(g.acked) {
			return fmt.Errorf("position %q was acknowledged where %d is next", position, g.acked)
		}
	}
	return nil
}

func (g *generator) Teardown(context.Context) error { return nil }

type forgetful struct {
	total string
	count int
}

func (f *forgetful) Configure(settings plugin.Settings) error {
	f.total = settings["total"]
	return nil
}

func (f *forgetful) Open(context.Context) error { return nil }

func (f *forgetful) Write(_ context.Context, records []*plugin.Record) []error {
	f.count += len(records)
	return nil
}

func (f *forgetful) Teardown(context.Context) error {
	if f.total == "" {
		return nil
	}
	return os.WriteFile(f.total, []byte(strconv.Itoa(f.count)), 0o644)
}
