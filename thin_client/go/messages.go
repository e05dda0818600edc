package orderlane

import (
	"context"
	"iter"
)

// Delivery is a message in a loop over Messages.
type Delivery struct {
	*Message
	ctx     context.Context
	settle  func(err error)
	settled bool
}

// Context is as that of a handler in Run: it ends when the lease is lost or the drain takes too
// long.
func (d *Delivery) Context() context.Context { return d.ctx }

// Settle says what became of the message, as the return of a handler in Run does. A second call has
// no effect. Without one the end of the loop's body acks, and a body that is left by break, return
// or panic gives the message back.
func (d *Delivery) Settle(err error) {
	if !d.settled {
		d.settled = true
		d.settle(err)
	}
}

// Messages gives one message after the other, until ctx ends or the loop is left; then it drains.
// Use Run to handle messages of different keys at a time. After the loop Err has what Run would
// return.
//
//	for message := range consumer.Messages(ctx) {
//		message.Settle(charge(message.Context(), message.Body))
//	}
func (c *Consumer) Messages(ctx context.Context) iter.Seq[*Delivery] {
	return func(yield func(*Delivery) bool) {
		if err := c.start(1); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.misused = err
			return
		}
		defer context.AfterFunc(ctx, c.Stop)()
		defer context.AfterFunc(c.life, c.Stop)()
		drained := make(chan struct{})
		go func() { // its time runs while the loop's body does
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
	h, handling := c.next(ctx, c.takeOne)
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
	delivery := &Delivery{Message: h.messages[0], ctx: handling, settle: settle}
	defer func() {
		if goOn {
			delivery.Settle(nil)
		} else {
			delivery.Settle(Defer())
		}
	}()
	return yield(delivery)
}

// Err says what ended a loop over Messages; nil for the end of its context, or of the loop.
func (c *Consumer) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.misused != nil || c.feeder == nil {
		return c.misused
	}
	return c.feeder.failure
}
