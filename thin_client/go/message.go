package orderlane

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"orderlane/internal/session"
)

// Message is one delivery of one message. Its fields are not to be written.
type Message struct {
	Topic string
	// Queue names the queue's period of ownership, such as broker-a_3#1; opaque.
	Queue string
	// Offset is the place in the queue, in messages.
	Offset int64
	Body   []byte
	// Key is the producer's message key; empty if it gave none.
	Key string
	// OrderKey is the value by which the message keeps its order; nil if it is in no order.
	OrderKey []byte
	// Tag is the producer's; empty if it gave none.
	Tag        string
	Properties map[string]string
	// Attempt says which hand-out this is, 1 for the first.
	Attempt int
	// BornAt is when the producer made the message, by its clock; zero if unknown.
	BornAt time.Time
	// MessageID is unique, and the same over redeliveries and a producer's retries: for
	// de-duplication.
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

// String names the message for logs.
func (m *Message) String() string {
	return fmt.Sprintf("%s/%s at offset %d (attempt %d)", m.Topic, m.Queue, m.Offset, m.Attempt)
}

// JSON reads the body into target, as json.Unmarshal; the error names the message.
func (m *Message) JSON(target any) error {
	if err := json.Unmarshal(m.Body, target); err != nil {
		return fmt.Errorf("the body of %v is not the JSON that was expected: %w", m, err)
	}
	return nil
}

// Deadline is when the lease ends unless it is extended, which a consumer does by itself.
func (m *Message) Deadline() time.Time { return wallTime(m.lease.Deadline()) }

// LeaseLost says whether the message may have gone to someone else: stop if you can.
func (m *Message) LeaseLost() bool { return m.lease.Lost() }

// KeyBatch is some messages of one order key, in order, or a single one without a key.
type KeyBatch struct {
	// OrderKey of all of them; nil for a message that is in no order.
	OrderKey []byte
	Messages []*Message
}

// traceHeaders are the properties in which a W3C trace context travels.
var traceHeaders = [...]string{"traceparent", "tracestate"}

// Tracer carries trace contexts with messages. Both methods must be safe for concurrent use.
type Tracer interface {
	// Inject puts the trace context of ctx into carrier, under traceparent and tracestate.
	Inject(ctx context.Context, carrier map[string]string)
	// Extract returns ctx with the trace context of carrier, for a handler.
	Extract(ctx context.Context, carrier map[string]string) context.Context
}

// traced is a handler's context with what came along.
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
	return tracer.Extract(ctx, carrier)
}
