package orderlane

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

// Consumer pulls the messages of a consumer group in order by key, and acks the handled ones. It is
// used once, for one of Run, RunBatches and Messages. Stop, StopNow and String may be called from
// any goroutine.
type Consumer struct {
	settings *settings
	life     context.Context // of NewConsumer

	mu       sync.Mutex // guards the fields below
	arrived  sync.Cond  // a message can be taken, or the consumer ends
	waiting  int        // for arrived
	changed  chan struct{}
	stopped  chan struct{} // closed at the stop
	hard     chan struct{} // closed by StopNow
	hardOnce sync.Once
	used     bool
	ending   bool // Stop was called
	overdue  bool // the drain has timed out
	misused  error
	session  *session.Session
	feeder   *feeder
	handling map[*session.Lease]*handling // by each lease a handler holds
}

// handling is one run of a handler.
type handling struct {
	taken    []*session.Lease
	messages []*Message
	cancel   context.CancelCauseFunc
	ended    bool // by the drain: an error releases the message
}

// end cancels the handler for the drain. Caller holds the consumer's lock.
func (h *handling) end() {
	h.ended = true
	h.cancel(ErrDrainTimeout)
}

// NewConsumer makes a consumer of the group at the servers: host:port, or several separated by
// commas; when one fails, the next is tried. A name may resolve to several addresses. NewConsumer
// does not connect: an error means an invalid argument. The end of ctx drains the consumer, as the
// end of Run's context does.
func NewConsumer(
	ctx context.Context, servers, group string, options ...ConsumerOption,
) (*Consumer, error) {
	settings := newSettings(servers)
	settings.setGroup(group)
	if ctx == nil {
		settings.fail("NewConsumer %s", noContext)
	}
	apply(settings, options, ConsumerOption.ofConsumer)
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

// Run handles messages, as many keys at a time as WithConcurrency says, until ctx ends; then it
// drains and returns nil.
//
// The handler's result is the outcome: nil acks; Retry, RetryAfter, Reject and Defer give other
// outcomes; any other error, or a panic, is logged and means retry. The handler's context carries
// the values of ctx. It ends with Run, not with ctx, so that the drain can wait for handlers;
// before, it is cancelled when the message's lease is lost (cause ErrLeaseLost) or the drain times
// out (cause ErrDrainTimeout).
//
// The drain waits for handlers, as long as WithDrainTimeout says, releases messages not yet
// handled, and sends the last acks. A handler that is still running after that is abandoned: its
// message is delivered again when its lease expires.
//
// Run returns an error if the proxy refuses the consumer and no retry can help, for example because
// the group is unknown. It refuses a nil handler or context.
func (c *Consumer) Run(
	ctx context.Context, handle func(ctx context.Context, message *Message) error,
) error {
	if err := checkRun(ctx, "Run", handle != nil); err != nil {
		return err
	}
	single := func(ctx context.Context, messages []*Message) (int, error) {
		if err := handle(ctx, messages[0]); err != nil {
			return 0, err
		}
		return 1, nil
	}
	return c.run(ctx, 1, single, c.takeOne)
}

// RunBatches is Run for handlers that take several messages of one key at once: up to WithMaxRun
// messages that arrived together, in order.
//
// The handler returns the number of messages done, counted from the first; these are acked. If some
// are left, err is the outcome of the next one, as in Run, and those behind it are released without
// counting an attempt. If err is nil, all that are left are released.
func (c *Consumer) RunBatches(
	ctx context.Context, handle func(ctx context.Context, batch *KeyBatch) (done int, err error),
) error {
	if err := checkRun(ctx, "RunBatches", handle != nil); err != nil {
		return err
	}
	whole := func(ctx context.Context, messages []*Message) (int, error) {
		own := slices.Clone(messages) // the handler may filter or sort them in place
		return handle(ctx, &KeyBatch{OrderKey: own[0].OrderKey, Messages: own})
	}
	return c.run(ctx, batchRun, whole, c.takeBatch)
}

const noContext = "got a nil context: expected one, such as context.Background()"

// checkRun refuses arguments that would fail after the start, or for every message.
func checkRun(ctx context.Context, form string, hasHandler bool) error {
	if ctx == nil {
		return errors.New(form + " " + noContext)
	}
	if !hasHandler {
		return errors.New(form + " got a nil handler: expected a function")
	}
	return nil
}

// Stop drains the consumer, as the end of Run's context does.
func (c *Consumer) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop()
}

// StopNow ends the consumer at once: it cancels handlers' contexts and waits a second for them.
func (c *Consumer) StopNow() {
	c.Stop()
	c.hardOnce.Do(func() { close(c.hard) })
}

// String returns a status line.
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
	ctx, end := handlersOf(ctx)
	defer end()
	for range c.settings.concurrency {
		go c.work(ctx, handle, take)
	}
	<-c.stopped
	c.drain()
	return c.Err()
}

// handlersOf returns the context of all handlers: it has the values of ctx, and ends with the run.
func handlersOf(ctx context.Context) (handlers context.Context, end func()) {
	handlers, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	return handlers, func() { cancel(ErrDrainTimeout) }
}

func (c *Consumer) start(defaultRun int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used {
		return fmt.Errorf("consumer of %s: %w", c.settings.group, ErrClosed)
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
	// handler handles messages and returns how many of them are done.
	handler func(ctx context.Context, messages []*Message) (done int, err error)
	// taker takes messages to handle from the session, if there are any. Caller holds mu.
	taker func() []*session.Lease
)

// work is the loop of one handler goroutine.
func (c *Consumer) work(ctx context.Context, handle handler, take taker) {
	for c.handleNext(ctx, handle, take) {
	}
}

// handleNext waits for messages, handles them, and reports whether to continue.
func (c *Consumer) handleNext(ctx context.Context, handle handler, take taker) (goOn bool) {
	h := c.next(take)
	if h == nil {
		return false
	}
	defer func() {
		if !goOn { // runtime.Goexit in a handler or hook: this goroutine cannot be kept
			go c.work(ctx, handle, take)
		}
	}()
	returned := false
	defer func() {
		if !returned {
			goOn = c.settlePanic(h, recover())
		}
	}()
	done, err := handle(c.begin(ctx, h), h.messages)
	returned = true
	c.settle(h, done, err)
	return true
}

// settlePanic keeps one bad message from ending the handling of others.
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

// next waits for messages to handle; it returns nil at the end. What it returns must be settled.
func (c *Consumer) next(take taker) *handling {
	taken := c.await(take)
	if taken == nil {
		return nil
	}
	messages := make([]*Message, len(taken))
	for n, lease := range taken {
		messages[n] = newMessage(lease)
	}
	return &handling{taken: taken, messages: messages, cancel: func(error) {}}
}

// begin tells the hooks of the start, and returns the handler's context.
func (c *Consumer) begin(ctx context.Context, h *handling) context.Context {
	c.tell(func() { ctx = traced(ctx, c.settings.tracer, h.messages[0].Properties) })
	ctx, h.cancel = context.WithCancelCause(ctx)
	if hook := c.settings.hooks.HandleStart; hook != nil {
		for _, message := range h.messages {
			c.tell(func() { hook(message) })
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lease := range h.taken {
		c.handling[lease] = h
		if lease.Lost() {
			h.cancel(ErrLeaseLost)
		}
	}
	if c.overdue {
		h.end()
	}
	return ctx
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

// settle reports the outcome of the messages a handler took.
func (c *Consumer) settle(h *handling, done int, err error) {
	count := len(h.messages)
	done = min(max(done, 0), count)
	if err != nil && done == count {
		done = count - 1 // contradictory: a duplicate is better than a loss
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
		c.settings.logger.Error("handling failed; the message will be retried",
			"message", h.messages[done].String(), "error", err)
	}
	h.cancel(nil)
	defer c.close(h, done, outcome) // also if a hook ends the goroutine
	c.tellEnds(h, done, outcome)
}

// close passes the outcome to the session, which lets the next message start.
func (c *Consumer) close(h *handling, done int, outcome session.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lease := range h.taken {
		delete(c.handling, lease)
	}
	if err := c.session.Settle(h.taken, done, outcome, now()); err != nil {
		c.settings.logger.Error("client bug: the session refused an outcome", "error", err)
	}
	c.turn()
}

// tellEnds reports ends before the session lets the key's next message start elsewhere.
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

// turn wakes all that wait for a change. Caller holds mu.
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
