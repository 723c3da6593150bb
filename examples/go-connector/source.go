package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/encoding/protojson"

	"go-connector/internal/plugin"
)

const mostBytes = 1 << 20 // in one message, as far as a single record is not larger

var sourceSettings = []plugin.Setting{
	{Name: "path", Description: "The file to read. One that is missing is waited for.", Type: plugin.File, Required: true},
	{Name: "batch", Description: "Records in a message, at most.", Type: plugin.Int, Default: "1000", GreaterThan: "0"},
	{Name: "poll", Description: "How long to wait before looking for new lines.", Type: plugin.Duration, Default: "100ms"},
}

// source reads the records of a file and waits for more. The position of a record is the number of bytes up to the end of its line.
type source struct {
	log   hclog.Logger
	path  string
	batch int
	poll  time.Duration

	offset int64 // where the record ends that was read last
	file   *os.File
	lines  *bufio.Reader
	begun  []byte // a line whose end is not there yet
	failed error  // to be told when what was read before it has been given
}

func newSource(log hclog.Logger) plugin.Source { return &source{log: log} }

func (s *source) Configure(settings plugin.Settings) error {
	s.path, s.batch, s.poll = settings["path"], settings.Int("batch"), settings.Duration("poll")
	return nil
}

func (s *source) Open(_ context.Context, position []byte) error {
	if len(position) > 0 {
		offset, err := strconv.ParseInt(string(position), 10, 64)
		if err != nil || offset < 0 {
			return fmt.Errorf("position %q is not one of this source", position)
		}
		s.offset = offset
	}
	if err := s.open(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	s.log.Debug("opened", "path", s.path, "offset", s.offset)
	return nil
}

func (s *source) Read(ctx context.Context) ([]*plugin.Record, error) {
	if s.failed != nil {
		return nil, s.failed
	}
	for {
		found, err := s.batchOf()
		if len(found) > 0 {
			s.failed = err
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(s.poll):
		}
	}
}

// batchOf gives what is there, which may be nothing.
func (s *source) batchOf() (found []*plugin.Record, err error) {
	for size := 0; len(found) < s.batch && size < mostBytes; {
		line, err := s.line()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		record := &plugin.Record{}
		if err := protojson.Unmarshal(line, record); err != nil {
			return found, fmt.Errorf("%s: the line at byte %d is no record: %w", s.path, s.offset, err)
		}
		size += len(line)
		s.offset += int64(len(line))
		record.Position = strconv.AppendInt(nil, s.offset, 10)
		found = append(found, record)
	}
	return found, nil
}

// line gives the next line with its end, or io.EOF as long as there is none.
func (s *source) line() ([]byte, error) {
	if s.file == nil {
		if err := s.open(); err != nil {
			return nil, err
		}
	}
	part, err := s.lines.ReadBytes('\n')
	s.begun = append(s.begun, part...)
	if errors.Is(err, io.EOF) {
		if shorter := s.complete(); shorter != nil {
			return nil, shorter
		}
	}
	if err != nil {
		return nil, err
	}
	line := s.begun
	s.begun = nil
	return line, nil
}

// open goes to the end of the last record. io.EOF: there is no file yet.
func (s *source) open() error {
	file, err := os.Open(s.path)
	if errors.Is(err, os.ErrNotExist) && s.offset == 0 {
		return io.EOF
	}
	if err != nil {
		return err
	}
	s.file, s.lines = file, bufio.NewReaderSize(file, 1<<16)
	if err := s.complete(); err != nil {
		return err
	}
	_, err = file.Seek(s.offset, io.SeekStart)
	return err
}

// complete says whether the file still has what was read from it.
func (s *source) complete() error {
	about, err := s.file.Stat()
	if err == nil && about.Size() < s.offset {
		err = fmt.Errorf("%s has %d bytes, position %d is behind its end: it is not the file that was read", s.path, about.Size(), s.offset)
	}
	return err
}

// Ack has nothing to do: a file keeps its lines.
func (s *source) Ack(context.Context, [][]byte) error { return nil }

func (s *source) Teardown(context.Context) error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
