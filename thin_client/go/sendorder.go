package orderlane

import (
	"context"
	"sync"
	"time"
)

// sendOrder lets one call send at a time, in the order of calling. When a call fails, the calls
// behind it that wait and share its lanes must not be sent: the application may send the failed
// messages again. Calls ahead of it are sent: a waiting call may end before them, because its
// context ends. Failures are remembered only while calls wait.
type sendOrder struct {
	mu     sync.Mutex
	last   int
	inside map[int]struct{}
	failed map[sendLane][]sendFailure
	tail   chan struct{} // closed when the last call ends; nil: no call yet
}

// sendFailure holds back the calls behind the failed one, up to the last that was made before it
// ended.
type sendFailure struct{ call, last int }

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
	o.last++
	if o.inside == nil {
		o.inside, o.failed = map[int]struct{}{}, map[sendLane][]sendFailure{}
	}
	o.inside[o.last] = struct{}{}
	t := ticket{number: o.last, before: o.tail, after: make(chan struct{})}
	if t.before == nil {
		now := make(chan struct{})
		close(now)
		t.before = now
	}
	o.tail = t.after
	return t
}

// wait waits for the call's turn, at most until limit or the end of ctx.
func (t ticket) wait(ctx context.Context, limit time.Duration) error {
	select {
	case <-t.before:
		return nil
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.before:
		return nil
	case <-timer.C:
		return context.DeadlineExceeded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave ends a call; failed are the lanes of messages it did not store.
func (o *sendOrder) leave(t ticket, failed []sendLane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.inside, t.number)
	for _, lane := range failed {
		o.fail(t.number, lane)
	}
	if len(o.inside) == 0 {
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

// fail notes that a call failed in a lane.
func (o *sendOrder) fail(call int, lane sendLane) {
	failures := o.failed[lane]
	if n := len(failures) - 1; n >= 0 && failures[n].call <= call && call <= failures[n].last {
		failures[n].last = o.last
		return
	}
	var waitedFor []sendFailure
	if len(failures) > 0 {
		oldest := o.last
		for each := range o.inside {
			oldest = min(oldest, each)
		}
		for _, each := range failures {
			if each.call < call && each.last >= oldest {
				waitedFor = append(waitedFor, each)
			}
		}
	}
	o.failed[lane] = append(waitedFor, sendFailure{call, o.last})
}

// heldBack reports whether a call failed in one of these lanes that was made before this one and
// ended after that.
func (o *sendOrder) heldBack(t ticket, lanes []sendLane) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, lane := range lanes {
		for _, each := range o.failed[lane] {
			if each.call < t.number && t.number <= each.last {
				return true
			}
		}
	}
	return false
}
