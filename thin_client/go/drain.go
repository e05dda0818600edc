package orderlane

import (
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

// handlerGrace is the time that handlers cancelled by the drain have left to return.
const handlerGrace = time.Second

// stop begins the drain. Caller holds mu.
func (c *Consumer) stop() {
	c.ending = true
	if c.session == nil || c.session.Stopping() {
		return
	}
	c.session.Stop(now())
	close(c.stopped)
	c.arrived.Broadcast()
	c.turn()
}

// drain waits for handlers, sends the last verdicts, and closes the connections.
func (c *Consumer) drain() {
	if !c.reached(func() bool { return c.session.Drained() }, c.settings.drainTimeout, c.hard) {
		c.mu.Lock()
		c.overdue = true
		for _, h := range c.handling {
			h.end()
		}
		c.mu.Unlock()
		c.reached(func() bool { return c.session.Open() == 0 }, handlerGrace, nil)
		c.reached(func() bool { return c.session.Flushed() }, c.settings.requestTimeout, nil)
	}
	c.feeder.close()
}

// reached waits for condition until limit or hurry, and reports whether it was met.
func (c *Consumer) reached(condition func() bool, limit time.Duration, hurry chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		c.mu.Lock()
		done := condition()
		c.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-c.changed:
		case <-timer.C:
			return false
		case <-hurry:
			return false
		}
	}
}

// leasesLost cancels handlers. Caller holds mu, and calls the returned function without it.
func (c *Consumer) leasesLost(lost []*session.Lease) (tell func()) {
	var messages []*Message
	for _, lease := range lost {
		if h := c.handling[lease]; h != nil {
			h.cancel(ErrLeaseLost)
			for n, each := range h.taken {
				if each == lease {
					messages = append(messages, h.messages[n])
				}
			}
		}
	}
	return func() {
		if hook := c.settings.hooks.LeaseLost; hook != nil {
			for _, message := range messages {
				c.tellApart(func() { hook(message) })
			}
		}
	}
}
