package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/encoding/protojson"

	"go-connector/internal/plugin"
)

var destinationSettings = []plugin.Setting{
	{Name: "path", Description: "The file that records are added to.", Type: plugin.File, Required: true},
	{Name: "fail.contains", Description: "A record with this text in its raw payload is refused, to try what happens then.", Type: plugin.String},
	{Name: "fail.rest", Description: "What follows such a record in its batch is refused as well, as by connectors that stop at the first error.", Type: plugin.Bool, Default: "false"},
}

// destination adds records to a file, a line of JSON each.
type destination struct {
	log  hclog.Logger
	path string
	fail string
	rest bool
	file *os.File
	size int64
}

func newDestination(log hclog.Logger) plugin.Destination { return &destination{log: log} }

func (d *destination) Configure(settings plugin.Settings) error {
	d.path, d.fail, d.rest = settings["path"], settings["fail.contains"], settings.Bool("fail.rest")
	return nil
}

// Open cuts off a last line without an end: what was half written when a program was killed has not been acknowledged.
func (d *destination) Open(context.Context) error {
	file, err := os.OpenFile(d.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	d.file = file
	about, err := file.Stat()
	if err != nil {
		return err
	}
	whole, err := endOfLines(file, about.Size())
	if err != nil {
		return err
	}
	if whole < about.Size() {
		d.log.Warn("a line that was half written is removed", "path", d.path, "bytes", about.Size()-whole)
	}
	return d.cut(whole)
}

// Write answers when the records are on the disk. One that can't be a line does not keep the others from it.
func (d *destination) Write(_ context.Context, records []*plugin.Record) []error {
	outcomes := make([]error, len(records))
	var lines bytes.Buffer
	for i, record := range records {
		if d.rest && i > 0 && outcomes[i-1] != nil {
			outcomes[i] = outcomes[i-1]
			continue
		}
		if d.fail != "" && strings.Contains(string(record.GetPayload().GetAfter().GetRawData()), d.fail) {
			outcomes[i] = fmt.Errorf("it contains %q", d.fail)
			continue
		}
		line, err := protojson.Marshal(record)
		if err != nil {
			outcomes[i] = err
			continue
		}
		lines.Write(line)
		lines.WriteByte('\n')
	}
	if err := d.add(lines.Bytes()); err != nil {
		for i := range outcomes {
			if outcomes[i] == nil {
				outcomes[i] = err
			}
		}
	}
	return outcomes
}

// add writes everything or, if it can, nothing.
func (d *destination) add(lines []byte) error {
	_, err := d.file.Write(lines)
	if err == nil {
		err = d.file.Sync()
	}
	if err != nil {
		return errors.Join(err, d.cut(d.size))
	}
	d.size += int64(len(lines))
	return nil
}

// cut makes the file end there, and goes there.
func (d *destination) cut(size int64) error {
	if err := d.file.Truncate(size); err != nil {
		return err
	}
	d.size = size
	_, err := d.file.Seek(size, io.SeekStart)
	return err
}

func (d *destination) Teardown(context.Context) error {
	if d.file == nil {
		return nil
	}
	return d.file.Close()
}

// endOfLines finds where the last whole line ends, from the back.
func endOfLines(file *os.File, size int64) (int64, error) {
	part := make([]byte, 1<<16)
	for end := size; end > 0; {
		start := max(0, end-int64(len(part)))
		n, err := file.ReadAt(part[:end-start], start)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if at := bytes.LastIndexByte(part[:n], '\n'); at >= 0 {
			return start + int64(at) + 1, nil
		}
		end = start
	}
	return 0, nil
}
