package plugin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"go-connector/internal/pb/opencdcv1"
)

const (
	mostWaiting  = 4 << 20     // bytes of records that have arrived and are not being written
	stopPatience = time.Minute // until the last record has arrived
)

type outcome struct {
	position []byte
	error    string
}

// destinationRun is a destination between the calls of a host, whatever the dialect. What arrives while something is being written is
// written together, so that many small messages cost as little as a large one.
type destinationRun struct {
	*life
	destination Destination
	declared    []Setting

	writing sync.Mutex
	torn    bool // whoever holds writing may look

	mu      sync.Mutex
	changed *sync.Cond
	waiting []*Record
	size    int
	handled []byte // position of the last record that was answered
	cancel  context.CancelFunc
	ended   error // io.EOF: nothing more will arrive
	done    bool  // nothing more will be answered
}

func newDestinationRun(destination Destination, declared []Setting) *destinationRun {
	made := &destinationRun{life: newLife(), destination: destination, declared: declared, cancel: func() {}}
	made.changed = sync.NewCond(&made.mu)
	return made
}

func (d *destinationRun) configure(config map[string]string) error {
	return d.step(initial, configured, func() error {
		settings, err := checked(config, d.declared)
		if err != nil {
			return err
		}
		return d.destination.Configure(settings)
	})
}

func (d *destinationRun) open(ctx context.Context) error {
	return d.step(configured, started, func() error { return d.destination.Open(ctx) })
}

// run writes what arrives and answers for each record, in order, until the host says that there are no more.
func (d *destinationRun) run(ctx context.Context, send func([]outcome) error, receive func() ([]*Record, error)) error {
	if err := d.step(started, running, nothing); err != nil {
		return err
	}
	writing, cancel := context.WithCancel(ctx)
	defer cancel()
	d.set(func() { d.cancel = cancel })
	defer context.AfterFunc(writing, func() { d.set(func() { d.ended = cmp.Or(d.ended, writing.Err()) }) })()
	go d.arrive(receive)
	err := d.answer(writing, send)
	d.set(func() { d.done = true })
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return nil // by a teardown
	}
	if err != nil {
		d.fail()
	}
	return err
}

// set changes what others wait for.
func (d *destinationRun) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	d.changed.Broadcast()
}

func (d *destinationRun) arrive(receive func() ([]*Record, error)) {
	for {
		records, err := receive()
		size := 0
		for _, record := range records {
			size += roughly(record)
		}
		d.mu.Lock()
		for d.size > mostWaiting && d.ended == nil {
			d.changed.Wait()
		}
		if d.ended == nil {
			d.ended = err
		}
		d.waiting = append(d.waiting, records...)
		d.size += size
		over := d.ended != nil
		d.changed.Broadcast()
		d.mu.Unlock()
		if over {
			return
		}
	}
}

// roughly is the size of a record in bytes. Protobuf's own goes through metadata by reflection, which takes a third as long as reading them.
func roughly(record *Record) int {
	size := len(record.GetPosition()) + of(record.GetKey()) + of(record.GetPayload().GetBefore()) + of(record.GetPayload().GetAfter())
	for name, value := range record.GetMetadata() {
		size += len(name) + len(value)
	}
	return size
}

func of(data *opencdcv1.Data) int {
	if structured := data.GetStructuredData(); structured != nil {
		return proto.Size(structured)
	}
	return len(data.GetRawData())
}

// taken gives everything that waits. What came before the end comes before it.
func (d *destinationRun) taken() ([]*Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.waiting) == 0 && d.ended == nil {
		d.changed.Wait()
	}
	if len(d.waiting) == 0 {
		return nil, d.ended
	}
	records := d.waiting
	d.waiting, d.size = nil, 0
	d.changed.Broadcast()
	return records, nil
}

func (d *destinationRun) answer(ctx context.Context, send func([]outcome) error) error {
	for {
		records, err := d.taken()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		outcomes, err := d.write(ctx, records)
		if err != nil {
			return err
		}
		if err := send(outcomes); err != nil {
			return err
		}
		d.set(func() { d.handled = outcomes[len(outcomes)-1].position })
	}
}

func (d *destinationRun) write(ctx context.Context, records []*Record) ([]outcome, error) {
	d.writing.Lock()
	defer d.writing.Unlock()
	if d.torn {
		return nil, context.Canceled
	}
	errs := d.destination.Write(ctx, records)
	if errs != nil && len(errs) != len(records) {
		return nil, fmt.Errorf("write plugin error: %d outcomes for %d records", len(errs), len(records))
	}
	outcomes := make([]outcome, len(records))
	for i, record := range records {
		outcomes[i].position = record.GetPosition()
		if errs != nil && errs[i] != nil {
			outcomes[i].error = errs[i].Error()
		}
	}
	return outcomes, nil
}

// stop returns when the record with this position has been answered. Nothing is ever held back, so that is all.
func (d *destinationRun) stop(ctx context.Context, position []byte) error {
	if len(position) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { d.set(func() {}) })()
	d.mu.Lock()
	defer d.mu.Unlock()
	for !bytes.Equal(d.handled, position) {
		if d.done || ctx.Err() != nil {
			return fmt.Errorf("the record with position %q has not arrived", position)
		}
		d.changed.Wait()
	}
	return nil
}

// teardown ends a stream that is still open.
func (d *destinationRun) teardown(ctx context.Context) error {
	if !d.end() {
		return nil
	}
	d.mu.Lock()
	cancel := d.cancel
	d.mu.Unlock()
	cancel()
	d.writing.Lock()
	defer d.writing.Unlock()
	d.torn = true
	return d.destination.Teardown(ctx)
}
