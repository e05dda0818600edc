package orderlane

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"orderlane/internal/session"
)

// Consumer pulls the messages of a consumer group, in order by key, and acks what was handled. It
// is used once, for one of Run, RunBatches and Messages. Stop, StopNow and String may be called
// from any goroutine.
type Consumer struct {
	settings *settings
	life     context.Context // of NewConsumer

	mu       sync.Mutex // guards all below
	arrived  sync.Cond  // a message may be taken, or the end has come
	waiting  int        // for arrived
	changed  chan struct{}
	stopped  chan struct{} // closed at the stop
	hard     chan struct{} // closed by StopNow
	hardOnce sync.Once
	used     bool
	ending   bool // Stop was called
	overdue  bool // the drain takes too long
	misused  error
	session  *session.Session
	feeder   *feeder
	handling map[*session.Lease]*handling // by each lease that is with a handler
}

// handling is what one handler does.
type handling struct {
	taken    []*session.Lease
	messages []*Message
	cancel   context.CancelCauseFunc
	ended    bool // by the drain: an error means that the message is given back
}

// end is the drain's. Caller holds the consumer's lock.
func (h *handling) end() {
	h.ended = true
	h.cancel(ErrDrainTimeout)
}

// NewConsumer makes a consumer of the group at the servers: host:port, or several separated by
// commas, of which the next is tried when one fails. A name may stand for several addresses.
// Nothing is connected yet, so an error means that an argument makes no sense. The end of ctx has
// the same effect as that of Run's.
func NewConsumer(
	ctx context.Context, servers, group string, options ...ConsumerOption,
) (*Consumer, error) {
	settings := newSettings(servers)
	settings.setGroup(group)
	for _, option := range options {
		option.ofConsumer(settings)
	}
	if settings.failed != nil {
		return nil, settings.failed
	}
	c := &Consumer{
		settings: settings,
		life:     ctx,
		changed:  make(chan struct{}, 1),
		stopped:  make(chan struct{}),
		hard:     make(chan struct{}),
		handling: map[*session.Lease]*handling{},
	}
	c.arrived.L = &c.mu
	return c, nil
}

// Run handles messages, Concurrency keys at a time, until ctx ends; then it drains and returns nil.
//
// What the handler returns is the outcome: nil acks; Retry, RetryAfter, Reject and Defer say
// otherwise; any other error, or a panic, is logged and means retry. The handler's context has the
// values of ctx. It does not end with ctx, but when the message's lease is lost (its cause is then
// ErrLeaseLost) or the drain takes too long (ErrDrainTimeout).
//
// The drain waits DrainTimeout for handlers, gives back what was not begun, and sends the last
// acks. A handler that goes on after that is left alone: its message comes again when its lease
// ends.
//
// Run returns an error if the proxy refuses what no retry can help, such as a group that it does
// not know.
func (c *Consumer) Run(
	ctx context.Context, handle func(ctx context.Context, message *Message) error,
) error {
	single := func(ctx context.Context, messages []*Message) (int, error) {
		if err := handle(ctx, messages[0]); err != nil {
			return 0, err
		}
		return 1, nil
	}
	return c.run(ctx, 1, single, c.takeOne)
}

// RunBatches is Run for handlers that take the messages of one key together: those that came
// together, MaxRun at most, in their order.
//
// The handler returns how many of them, from the first on, are done; these are acked. If that is
// not all, err is the outcome of the next one, as in Run, and those behind it are given back,
// uncounted. Without an error that holds for all that are not done.
func (c *Consumer) RunBatches(
	ctx context.Context, handle func(ctx context.Context, batch *KeyBatch) (done int, err error),
) error {
	whole := func(ctx context.Context, messages []*Message) (int, error) {
		return handle(ctx, &KeyBatch{OrderKey: messages[0].OrderKey, Messages: messages})
	}
	return c.run(ctx, batchRun, whole, c.takeBatch)
}

// Stop has the effect of the end of Run's context.
func (c *Consumer) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop()
}

// StopNow ends the consumer at once: handlers' contexts are cancelled, and given a second.
func (c *Consumer) StopNow() {
	c.Stop()
	c.hardOnce.Do(func() { close(c.hard) })
}

// String is a status line.
func (c *Consumer) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return fmt.Sprintf("<Consumer of %s, not started>", c.settings.group)
	}
	return fmt.Sprintf("<Consumer at %v %v>", c.feeder.address(), c.session)
}

func (c *Consumer) run(ctx context.Context, defaultRun int, handle handler, take taker) error {
	if err := c.start(defaultRun); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, c.Stop)()
	defer context.AfterFunc(c.life, c.Stop)()
	for range c.settings.concurrency {
		go c.work(ctx, handle, take)
	}
	<-c.stopped
	c.drain()
	return c.Err()
}

func (c *Consumer) start(defaultRun int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used {
		return fmt.Errorf("the consumer of %s: %w", c.settings.group, ErrClosed)
	}
	c.used = true
	c.session = session.New(c.settings.session(defaultRun))
	c.feeder = newFeeder(c)
	if c.ending {
		c.stop()
	}
	c.feeder.start()
	return nil
}

type (
	// handler is told what to handle, and says how much of it is done.
	handler func(ctx context.Context, messages []*Message) (done int, err error)
	// taker takes something to handle from the session, if there is any. Caller holds mu.
	taker func() []*session.Lease
)

// work is one handler's life.
func (c *Consumer) work(ctx context.Context, handle handler, take taker) {
	for c.handleNext(ctx, handle, take) {
	}
}

// handleNext waits for something to handle, and says whether to go on.
func (c *Consumer) handleNext(ctx context.Context, handle handler, take taker) (goOn bool) {
	h, handling := c.next(ctx, take)
	if h == nil {
		return false
	}
	returned := false
	defer func() {
		if !returned {
			goOn = c.settlePanic(h, recover())
			if !goOn { // runtime.Goexit: nobody can keep this goroutine
				go c.work(ctx, handle, take)
			}
		}
	}()
	done, err := handle(handling, h.messages)
	returned = true
	c.settle(h, done, err)
	return true
}

// settlePanic has one bad message not end the handling of the others.
func (c *Consumer) settlePanic(h *handling, panicked any) (recovered bool) {
	err := errors.New("the handler ended without an outcome")
	if panicked != nil {
		err = fmt.Errorf("panic: %v", panicked)
		c.settings.logger.Error("a handler panicked",
			"message", h.messages[0].String(), "panic", panicked, "stack", string(debug.Stack()))
	}
	c.settle(h, 0, err)
	return panicked != nil
}

func (c *Consumer) takeOne() []*session.Lease {
	if lease := c.session.Take(now()); lease != nil {
		return []*session.Lease{lease}
	}
	return nil
}

func (c *Consumer) takeBatch() []*session.Lease { return c.session.TakeBatch(now()) }

// next waits for something to handle; nil at the end.
func (c *Consumer) next(ctx context.Context, take taker) (*handling, context.Context) {
	taken := c.await(take)
	if taken == nil {
		return nil, nil
	}
	h := &handling{taken: taken, messages: make([]*Message, len(taken))}
	for n, lease := range taken {
		h.messages[n] = newMessage(lease)
	}
	ctx = context.WithoutCancel(ctx)
	c.tell(func() { ctx = traced(ctx, c.settings.tracer, h.messages[0].Properties) })
	ctx, h.cancel = context.WithCancelCause(ctx)
	if hook := c.settings.hooks.HandleStart; hook != nil {
		for _, message := range h.messages {
			c.tell(func() { hook(message) })
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lease := range taken {
		c.handling[lease] = h
		if lease.Lost() {
			h.cancel(ErrLeaseLost)
		}
	}
	if c.overdue {
		h.end()
	}
	return h, ctx
}

func (c *Consumer) await(take taker) []*session.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.session.Stopping() {
		if taken := take(); taken != nil {
			c.feeder.turn()
			return taken
		}
		c.waiting++
		c.arrived.Wait()
		c.waiting--
	}
	return nil
}

// settle says what became of what a handler took.
func (c *Consumer) settle(h *handling, done int, err error) {
	count := len(h.messages)
	done = min(max(done, 0), count)
	if err != nil && done == count {
		done = count - 1 // a contradiction: rather once more than lost
	}
	outcome, planned := outcomeOf(err)
	if err == nil {
		outcome.Kind = session.Defer
	}
	c.mu.Lock()
	if !planned && h.ended {
		outcome, planned = session.Outcome{Kind: session.Defer}, true
	}
	c.mu.Unlock()
	if !planned {
		c.settings.logger.Error("handling failed; it will be retried",
			"message", h.messages[done].String(), "error", err)
	}
	h.cancel(nil)
	c.tellEnds(h, done, outcome)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lease := range h.taken {
		delete(c.handling, lease)
	}
	if err := c.session.Settle(h.taken, done, outcome, now()); err != nil {
		c.settings.logger.Error("a bug of the client", "error", err)
	}
	c.turn()
}

// tellEnds comes before the session may let the key's next message begin elsewhere.
func (c *Consumer) tellEnds(h *handling, done int, outcome session.Outcome) {
	hook := c.settings.hooks.HandleEnd
	if hook == nil {
		return
	}
	for n, message := range h.messages {
		kind := session.OK
		if n == done {
			kind = outcome.Kind
		} else if n > done {
			kind = session.Defer
		}
		c.tell(func() { hook(message, kind.String()) })
	}
}

// tell calls a hook, or a tracer; one that panics is logged, and does no harm.
func (c *Consumer) tell(hook func()) {
	defer func() {
		if panicked := recover(); panicked != nil {
			c.settings.logger.Error("a hook panicked",
				"panic", panicked, "stack", string(debug.Stack()))
		}
	}()
	hook()
}

// turn lets go on whoever waits for what has changed. Caller holds mu.
func (c *Consumer) turn() {
	if c.feeder.failure != nil {
		c.stop()
	}
	c.feeder.turn()
	for range min(c.session.Takeable(), c.waiting) {
		c.arrived.Signal()
	}
	if c.session.Stopping() {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
}
