package orderlane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

// Producer sends messages. Goroutines may share it: one call is sent at a time, in the order of
// calling.
//
// A message is resent under the same id until it is stored or time is up, so it may be stored
// twice; consumers recognize duplicates by MessageID. When a call fails, calls already waiting with
// messages of the same keys fail too, unsent, so they cannot overtake a message that the
// application sends again. Later calls are sent.
type Producer struct {
	settings *settings
	dialer   *dialer
	order    sendOrder

	// State of the current call:
	tried      int
	connection *connection

	mu     sync.Mutex
	closed bool
}

// NewProducer makes a producer for the servers: host:port, or several separated by commas; when one
// fails, the next is tried. NewProducer does not connect: an error means an invalid argument.
func NewProducer(servers string, options ...ProducerOption) (*Producer, error) {
	settings := newSettings(servers)
	apply(settings, options, ProducerOption.ofProducer)
	if settings.failed != nil {
		return nil, settings.failed
	}
	return &Producer{settings: settings, dialer: settings.dialer()}, nil
}

// Send stores one message and returns its id. It tries until the deadline of ctx, or for
// WithSendTimeout if ctx has none. A SendError means that the message is not known to be stored;
// any other error, that it cannot be sent.
func (p *Producer) Send(ctx context.Context, message Outgoing) (string, error) {
	ids, err := p.SendBatch(ctx, []Outgoing{message})
	if len(ids) == 0 {
		return "", err
	}
	return ids[0], err
}

// SendBatch stores messages, those of one sharding key in order, and returns their ids, even with a
// SendError. Its Failures are the messages not known to be stored; the rest is stored. Large
// batches take several requests; none is sent after one that failed.
func (p *Producer) SendBatch(ctx context.Context, messages []Outgoing) ([]string, error) {
	deadline := now() + p.settings.sendTimeout
	if at, limited := ctx.Deadline(); limited {
		left := min(time.Until(at), longest) // includes the last try's answer
		deadline = now() + left - min(left/4, answerRoom)
	}
	deliveries, err := p.deliveries(ctx, messages, deadline)
	if err != nil || len(deliveries) == 0 {
		return nil, err
	}
	var ids []string
	for _, delivery := range deliveries {
		for _, parcel := range delivery.parcels {
			ids = append(ids, parcel.id)
		}
	}
	t, err := p.enter()
	if err != nil {
		return nil, err
	}
	if failure := p.send(ctx, t, deliveries); failure != nil {
		return ids, failure
	}
	return ids, nil
}

// Close closes the connection, after all earlier calls.
func (p *Producer) Close() error {
	p.mu.Lock()
	p.closed = true
	t := p.order.enter()
	p.mu.Unlock()
	<-t.before
	p.hangUp()
	p.order.leave(t, nil)
	return nil
}

// enter takes a place in the order, ahead of Close or not at all: a connection made behind Close
// would never be closed.
func (p *Producer) enter() (ticket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ticket{}, fmt.Errorf("cannot send: producer %w", ErrClosed)
	}
	return p.order.enter(), nil
}

// deliveries splits messages into requests, in order.
func (p *Producer) deliveries(
	ctx context.Context, messages []Outgoing, deadline time.Duration,
) ([]*delivery, error) {
	var found []*delivery
	room := 0
	for n := range messages {
		wire, err := messages[n].wire(ctx, p.settings)
		if err != nil {
			return nil, err
		}
		size := sizeOf(wire)
		alone := messages[n].Delay > 0
		if len(found) == 0 || size > room || alone {
			found = append(found, &delivery{deadline: deadline})
			room = batchBytes
		}
		last := found[len(found)-1]
		last.parcels = append(last.parcels, &parcel{message: wire, id: wire.Properties[uniqueID]})
		room -= size
		if alone {
			last.delay = time.Now().Add(messages[n].Delay)
			room = 0
		}
	}
	return found, nil
}

// send runs one call, from its place in the order to its end.
func (p *Producer) send(
	ctx context.Context, t ticket, deliveries []*delivery,
) (failure *SendError) {
	defer func() {
		var lanes []sendLane
		for _, delivery := range deliveries {
			if failure != nil {
				lanes = append(lanes, delivery.lanes()...)
			}
		}
		p.order.leave(t, lanes)
	}()
	if err := t.wait(ctx, deliveries[0].deadline-now()); err != nil {
		reason := "timed out while waiting for earlier sends"
		if ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded) {
			reason = "its context ended while it waited for earlier sends"
		}
		failure = deliveries[0].notSent(reason)
		failure.Err = err
	}
	for n := 0; n < len(deliveries) && failure == nil; n++ {
		delivery := deliveries[n]
		if p.order.heldBack(t, delivery.lanes()) {
			failure = delivery.notSent("an earlier send of its key failed while this one waited")
		} else if ctx.Err() != nil {
			failure = delivery.notSent("its context ended before it was sent")
			failure.Err = context.Cause(ctx)
		} else if now() > delivery.deadline {
			failure = delivery.notSent("timed out while waiting for earlier sends")
		} else {
			failure = p.deliver(ctx, delivery)
		}
	}
	if failure == nil {
		return nil
	}
	failure.Failures = nil
	for _, delivery := range deliveries {
		for _, parcel := range delivery.open() {
			if parcel.reason == "" {
				parcel.reason = "not sent: an earlier part of the batch failed"
			}
			failure.Failures = append(failure.Failures, parcel.failure())
		}
	}
	return failure
}

// deliver tries until the delivery is stored or no try is left.
func (p *Producer) deliver(ctx context.Context, delivery *delivery) *SendError {
	for {
		verdict := p.try(ctx, delivery)
		if verdict.stored || verdict.err != nil {
			return verdict.err
		}
		if session.IsNews(delivery.failures) {
			open := delivery.open()[0]
			p.settings.logger.Warn("send failed, retrying",
				"topic", open.message.Topic, "error", open.reason)
		}
		select {
		case <-time.After(verdict.pause):
		case <-ctx.Done():
			open := delivery.open()
			return sendError(open, open[0].code, context.Cause(ctx))
		}
	}
}

func (p *Producer) try(ctx context.Context, delivery *delivery) verdict {
	call := delivery.call(now())
	sent := false
	err := p.connect(ctx, call.timeout)
	if err == nil {
		sent = true
		err = p.connection.call(ctx, call.method, call.arguments, call.answer, call.timeout)
	}
	if err == nil {
		return delivery.answered(call.outcome(), now(), rand.Float64())
	}
	p.hangUp()
	p.tried++
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		delivery.deadline = 0 // cancelled by the application
	}
	return delivery.failed(err, sent, now(), rand.Float64())
}

func (p *Producer) connect(ctx context.Context, limit time.Duration) error {
	if p.connection != nil && !p.connection.closed {
		return nil
	}
	servers := p.settings.servers
	dialer := &dialer{tls: p.dialer.tls, timeout: limit}
	opened, err := dialer.open(ctx, servers[p.tried%len(servers)], p.tried/len(servers))
	if err == nil {
		p.connection = opened
	}
	return err
}

func (p *Producer) hangUp() {
	if p.connection != nil {
		p.connection.close()
		p.connection = nil
	}
}
