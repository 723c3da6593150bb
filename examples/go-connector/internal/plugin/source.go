package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// sourceRun is a source between the calls of a host, whatever the dialect.
type sourceRun struct {
	*life
	source   Source
	declared []Setting

	reading     context.Context // done: no new records are fetched
	stopReading context.CancelFunc
	fetching    chan struct{} // holds one while Read runs, or while nobody may begin it
	last        []byte        // position of what was fetched last; whoever holds fetching may look
	acking      sync.Mutex
	torn        chan struct{} // closed: there is no source any more
}

func newSourceRun(source Source, declared []Setting) *sourceRun {
	made := &sourceRun{
		life: newLife(), source: source, declared: declared, fetching: make(chan struct{}, 1), torn: make(chan struct{}),
	}
	made.reading, made.stopReading = context.WithCancel(context.Background())
	return made
}

func (s *sourceRun) configure(config map[string]string) error {
	return s.step(initial, configured, func() error {
		settings, err := checked(config, s.declared)
		if err != nil {
			return err
		}
		return s.source.Configure(settings)
	})
}

func (s *sourceRun) open(ctx context.Context, position []byte) error {
	return s.step(configured, started, func() error {
		s.last = position
		return s.source.Open(ctx, position)
	})
}

// run sends records until it is told to stop, and takes acks until the host says that there are no more.
func (s *sourceRun) run(ctx context.Context, send func([]*Record) error, receive func() ([][]byte, error)) error {
	if err := s.step(started, running, nothing); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, s.stopReading)()
	acks := make(chan error, 1)
	go func() {
		acks <- s.acks(ctx, receive)
		s.stopReading()
	}()
	err := s.read(ctx, send)
	if err == nil {
		select {
		case err = <-acks:
		case <-s.torn:
		}
	}
	if err != nil {
		s.fail()
	}
	return err
}

func (s *sourceRun) read(ctx context.Context, send func([]*Record) error) error {
	for {
		records, err := s.fetch()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read plugin error: %w", err)
		}
		if len(records) == 0 {
			continue
		}
		if err := send(records); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// fetch reads once; io.EOF when it was told to stop.
func (s *sourceRun) fetch() ([]*Record, error) {
	s.fetching <- struct{}{}
	defer func() { <-s.fetching }()
	if s.reading.Err() != nil {
		return nil, io.EOF
	}
	records, err := s.source.Read(s.reading)
	if err != nil {
		if s.reading.Err() != nil {
			return nil, io.EOF
		}
		return nil, err
	}
	if len(records) > 0 {
		s.last = records[len(records)-1].GetPosition()
	}
	return records, nil
}

func (s *sourceRun) acks(ctx context.Context, receive func() ([][]byte, error)) error {
	for {
		positions, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.ack(ctx, positions); err != nil {
			return fmt.Errorf("ack plugin error: %w", err)
		}
	}
}

func (s *sourceRun) ack(ctx context.Context, positions [][]byte) error {
	s.acking.Lock()
	defer s.acking.Unlock()
	select {
	case <-s.torn:
		return nil
	default:
		return s.source.Ack(ctx, positions)
	}
}

// stop returns when no more is read. What was read may still be on its way.
func (s *sourceRun) stop(ctx context.Context) ([]byte, error) {
	s.stopReading()
	select {
	case s.fetching <- struct{}{}:
		defer func() { <-s.fetching }()
		return s.last, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *sourceRun) teardown(ctx context.Context) error {
	if !s.end() {
		return nil
	}
	if _, err := s.stop(ctx); err != nil {
		return err
	}
	s.acking.Lock()
	defer s.acking.Unlock()
	close(s.torn)
	return s.source.Teardown(ctx)
}
