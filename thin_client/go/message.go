package orderlane

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

// Message is one delivery of one message. Treat its fields as read-only.
type Message struct {
	Topic string
	// Queue identifies the queue and its ownership period, for example broker-a_3#1; opaque.
	Queue string
	// Offset is the position in the queue, in messages.
	Offset int64
	Body   []byte
	// Key is the producer's message key; empty if absent.
	Key string
	// OrderKey is the order key's value; nil if the message is unordered.
	OrderKey []byte
	// Tag is the producer's tag; empty if absent.
	Tag        string
	Properties map[string]string
	// Attempt counts deliveries, 1 for the first.
	Attempt int
	// BornAt is the producer's timestamp; zero if unknown.
	BornAt time.Time
	// MessageID is unique, and stays the same over redeliveries and the producer's retries. Use
	// it for deduplication.
	MessageID string
	LeaseID   int64

	lease *session.Lease
}

func newMessage(lease *session.Lease) *Message {
	wire := lease.Message
	message := &Message{
		Topic:      lease.Topic,
		Queue:      lease.Queue,
		Offset:     wire.Offset,
		Body:       wire.Value,
		Key:        wire.Key,
		OrderKey:   wire.OrderKey,
		Tag:        wire.Tag,
		Properties: wire.Properties,
		Attempt:    max(int(wire.GetAttempt()), 1),
		MessageID:  wire.GetMessageId(),
		LeaseID:    *wire.LeaseId,
		lease:      lease,
	}
	if wire.BornAtMs != nil {
		message.BornAt = time.UnixMilli(*wire.BornAtMs)
	}
	return message
}

// String returns a name of the message for logs.
func (m *Message) String() string {
	return fmt.Sprintf("%s/%s at offset %d (attempt %d)", m.Topic, m.Queue, m.Offset, m.Attempt)
}

// JSON unmarshals the body into target. Errors name the message.
func (m *Message) JSON(target any) error {
	if err := json.Unmarshal(m.Body, target); err != nil {
		return fmt.Errorf("the body of %v does not match the expected JSON: %w", m, err)
	}
	return nil
}

// Deadline is when the lease expires unless extended. Consumers extend it automatically.
func (m *Message) Deadline() time.Time { return wallTime(m.lease.Deadline()) }

// LeaseLost reports whether the message may have been delivered to another client. Stop if so.
func (m *Message) LeaseLost() bool { return m.lease.Lost() }

// KeyBatch holds consecutive messages of one order key, or a single message without one.
type KeyBatch struct {
	// OrderKey of all messages; nil for an unordered message.
	OrderKey []byte
	Messages []*Message
}

// traceHeaders are the properties that carry a W3C trace context.
var traceHeaders = [...]string{"traceparent", "tracestate"}

// Tracer propagates trace contexts in messages. Both methods must be safe for concurrent use.
type Tracer interface {
	// Inject writes the trace context of ctx to carrier, as traceparent and tracestate.
	Inject(ctx context.Context, carrier map[string]string)
	// Extract returns ctx with the trace context from carrier, for a handler.
	Extract(ctx context.Context, carrier map[string]string) context.Context
}

// traced adds the message's trace context to a handler's context.
func traced(ctx context.Context, tracer Tracer, properties map[string]string) context.Context {
	if tracer == nil {
		return ctx
	}
	carrier := map[string]string{}
	for _, name := range traceHeaders {
		if value, came := properties[name]; came {
			carrier[name] = value
		}
	}
	if found := tracer.Extract(ctx, carrier); found != nil {
		return found
	}
	return ctx
}
