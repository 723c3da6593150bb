package plugin

import (
	"context"
	"fmt"
	"sync"
)

type state string

const (
	initial    state = "Initial"
	configured state = "Configured"
	started    state = "Started"
	running    state = "Running"
	errored    state = "Errored"
	tornDown   state = "TornDown"
)

// life holds the calls to their order. After an error only a teardown helps.
type life struct {
	mu  sync.Mutex
	now state
}

func newLife() *life { return &life{now: initial} }

// step does what is to be done between two states.
func (l *life) step(from, to state, do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != from {
		return fmt.Errorf("expected connector state [%q], actual connector state is %q", from, l.now)
	}
	if err := do(); err != nil {
		l.now = errored
		return err
	}
	l.now = to
	return nil
}

// fail notes that a stream has ended with an error.
func (l *life) fail() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == running {
		l.now = errored
	}
}

// end is possible from every state. It says whether it is the first time.
func (l *life) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.now != tornDown
	l.now = tornDown
	return first
}

func nothing() error { return nil }

// The moments in a connector's life, for whoever wants to know them.

func onCreated(ctx context.Context, connector any, config map[string]string) error {
	if interested, ok := connector.(Lifecycle); ok {
		return interested.OnCreated(ctx, config)
	}
	return nil
}

func onUpdated(ctx context.Context, connector any, before, after map[string]string) error {
	if interested, ok := connector.(Lifecycle); ok {
		return interested.OnUpdated(ctx, before, after)
	}
	return nil
}

func onDeleted(ctx context.Context, connector any, config map[string]string) error {
	if interested, ok := connector.(Lifecycle); ok {
		return interested.OnDeleted(ctx, config)
	}
	return nil
}
