package orderlane

import (
	"context"
	"sync"
)

// sendOrder lets one call send at a time, in the order of calling. When a call fails, waiting calls
// that were made before the failure and share its lanes must not be sent: the application may send
// the failed messages again. Failures are remembered only while calls wait.
type sendOrder struct {
	mu     sync.Mutex
	last   int
	inside int
	failed map[sendLane]int // the last call made before the lane's failure
	tail   chan struct{}    // closed when the last call ends; nil: no call yet
}

// ticket is one call's place in the order.
type ticket struct {
	number int
	before <-chan struct{}
	after  chan struct{}
}

// enter takes a place. It must be followed by leave.
func (o *sendOrder) enter() ticket {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inside++
	o.last++
	t := ticket{number: o.last, before: o.tail, after: make(chan struct{})}
	if t.before == nil {
		now := make(chan struct{})
		close(now)
		t.before = now
	}
	o.tail = t.after
	return t
}

// wait waits for the call's turn, or the end of ctx.
func (t ticket) wait(ctx context.Context) error {
	select {
	case <-t.before:
		return nil
	default:
	}
	select {
	case <-t.before:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave ends a call; failed are the lanes of messages it did not store.
func (o *sendOrder) leave(t ticket, failed []sendLane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inside--
	if o.failed == nil {
		o.failed = map[sendLane]int{}
	}
	for _, lane := range failed {
		o.failed[lane] = o.last
	}
	if o.inside == 0 {
		clear(o.failed)
	}
	select {
	case <-t.before:
		close(t.after)
	default: // it did not wait for its turn; the next call still must
		go func() {
			<-t.before
			close(t.after)
		}()
	}
}

// heldBack reports whether the call was made before one of these lanes failed.
func (o *sendOrder) heldBack(t ticket, lanes []sendLane) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, lane := range lanes {
		if o.failed[lane] >= t.number {
			return true
		}
	}
	return false
}
