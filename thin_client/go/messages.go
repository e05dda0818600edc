package orderlane

import (
	"context"
	"iter"
	"sync/atomic"
)

// Delivery is a message in a loop over Messages.
type Delivery struct {
	*Message
	ctx     context.Context
	settle  func(err error)
	settled atomic.Bool
}

// Context returns the message's context. As in Run, it is cancelled when the lease is lost or the
// drain times out.
func (d *Delivery) Context() context.Context { return d.ctx }

// Settle sets the outcome of the message, as a handler's result in Run does. A second call has no
// effect. Without Settle the end of the loop's body acks the message; leaving the body by break,
// return or panic releases it. It may be called from any goroutine.
func (d *Delivery) Settle(err error) {
	if d.settled.CompareAndSwap(false, true) {
		d.settle(err)
	}
}

// Messages returns an iterator over messages, one at a time, until ctx ends or the loop is left;
// then it drains. To handle different keys in parallel use Run. After the loop, Err returns the
// error that Run would return.
//
//	for message := range consumer.Messages(ctx) {
//		message.Settle(charge(message.Context(), message.Body))
//	}
func (c *Consumer) Messages(ctx context.Context) iter.Seq[*Delivery] {
	return func(yield func(*Delivery) bool) {
		err := checkRun(ctx, "Messages", true)
		if err == nil {
			err = c.start(1)
		}
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.misused = err
			return
		}
		defer context.AfterFunc(ctx, c.Stop)()
		defer context.AfterFunc(c.life, c.Stop)()
		ctx, end := handlersOf(ctx)
		defer end()
		drained := make(chan struct{})
		go func() { // the time runs even while the loop's body is busy
			<-c.stopped
			c.drain()
			close(drained)
		}()
		defer func() {
			c.Stop()
			<-drained
		}()
		for c.yieldNext(ctx, yield) {
		}
	}
}

func (c *Consumer) yieldNext(ctx context.Context, yield func(*Delivery) bool) (goOn bool) {
	h := c.next(c.takeOne)
	if h == nil {
		return false
	}
	settle := func(err error) {
		if err != nil {
			c.settle(h, 0, err)
		} else {
			c.settle(h, 1, nil)
		}
	}
	delivery := &Delivery{Message: h.messages[0], settle: settle}
	defer func() {
		if goOn {
			delivery.Settle(nil)
		} else {
			delivery.Settle(Defer())
		}
	}()
	delivery.ctx = c.begin(ctx, h)
	return yield(delivery)
}

// Err returns the error that ended a loop over Messages; nil if its context or the loop ended.
func (c *Consumer) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.misused != nil || c.feeder == nil {
		return c.misused
	}
	return c.feeder.failure
}
