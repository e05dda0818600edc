package orderlane

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/producer"
	"github.com/orderlane/orderlane/thin_client/go/internal/routing"
)

const (
	// uniqueID is the property that holds a message's unique id, as in RocketMQ.
	uniqueID = "UNIQ_KEY"
	// keys is the property that holds the message key, where no field exists for it.
	keys = "KEYS"
	// maxRequestBytes is the proxy's default request limit; batchBytes is the part of it that a
	// batch fills.
	maxRequestBytes = 5_000_000
	batchBytes      = 2_000_000

	byHash, anyQueue = -1, -2 // partitionId
	addDelayed       = 1      // DelayMessage.action
	delayedOnce      = 2      // DelayMessage.dmsgtype
)

// Outgoing is one message to send.
type Outgoing struct {
	Topic string
	Body  []byte
	// Key is the message key: for searches, and the order key in groups that use KEY. Empty: none.
	Key string
	// Route chooses the queue. Default: by Key; without a key, round robin.
	Route Route
	// Tag lets groups filter. Empty: no tag.
	Tag string
	// Properties of the application. UNIQ_KEY sets the message's id; by default one is generated.
	Properties map[string]string
	// Delay postpones the delivery, in whole seconds; Route is ignored then. A proxy whose broker
	// does not support delays answers with code 18.
	Delay time.Duration
}

// Route chooses the queue of a message.
type Route struct {
	keyed, inQueue bool
	key            string
	path           *routing.Path
	queue          int32
	err            error
}

// ShardingKey sends all messages of one key to one queue, in the order of sending. Surrounding
// blanks (U+0000 to U+0020) are not part of a key.
func ShardingKey(key string) Route { return Route{keyed: true, key: key} }

// ShardingPath reads the sharding key from the JSON body, for example at $.order.lines[0]['sku']. A
// string counts without surrounding blanks, any other value as canonical JSON. A message without
// such a value is sent without a sharding key.
func ShardingPath(path string) Route {
	parsed, err := routing.ParsePath(path)
	return Route{path: parsed, err: err}
}

// Queue chooses a queue by its position in the order by broker name, then id, counted from 0. A
// message for a position that the topic does not have is refused with code 11.
func Queue(place int) Route {
	route := Route{inQueue: true, queue: int32(place)}
	if place < 0 || int(route.queue) != place {
		route.err = fmt.Errorf("Queue is %d: expected 0 to %d", place, math.MaxInt32)
	}
	return route
}

// RandomQueue chooses any queue, even for a message with a key.
func RandomQueue() Route { return Route{inQueue: true, queue: anyQueue} }

// shardingKey returns a message's sharding key, if it has one.
func (r *Route) shardingKey(message *Outgoing) (key string, sharded bool, err error) {
	switch {
	case r.inQueue:
		return "", false, nil
	case r.keyed:
		return routing.PlainKey(r.key), true, nil
	case r.path != nil:
		if key, found, err := r.path.Key(message.Body); found || err != nil {
			return key, true, err
		}
	}
	key = routing.PlainKey(message.Key)
	return key, key != "", nil
}

// NewMessageID returns a unique id: 32 upper-case hexadecimal digits.
func NewMessageID() string { return strings.ToUpper(randomHex(16)) }

// wire encodes the message, or returns why it cannot be sent.
func (o *Outgoing) wire(ctx context.Context, settings *settings) (*producer.Message, error) {
	if o.Topic == "" {
		return nil, fmt.Errorf("Topic is empty: expected the name of a topic")
	}
	if o.Route.err != nil {
		return nil, fmt.Errorf("a message to %s: %w", o.Topic, o.Route.err)
	}
	if o.Delay < 0 {
		return nil, fmt.Errorf("a message to %s: Delay is %v: expected 0 or more", o.Topic, o.Delay)
	}
	properties := settings.trace(ctx)
	maps.Copy(properties, o.Properties)
	if properties[uniqueID] == "" {
		properties[uniqueID] = NewMessageID()
	}
	message := &producer.Message{
		Topic: o.Topic, Key: notEmpty(o.Key), Tags: notEmpty(o.Tag), Body: o.Body,
		PartitionId: byHash, Version: notEmpty(clientVersion), Properties: properties,
		Token: notEmpty(settings.token),
	}
	if message.Body == nil {
		message.Body = []byte{} // nil would be omitted
	}
	if o.Route.inQueue {
		message.PartitionId = o.Route.queue
	}
	key, sharded, err := o.Route.shardingKey(o)
	if err != nil {
		return nil, fmt.Errorf("a message to %s cannot be sent: %w", o.Topic, err)
	}
	if !utf8.ValidString(key) {
		return nil, fmt.Errorf("the sharding key %q of a message to %s is not valid UTF-8",
			key, o.Topic)
	}
	if sharded {
		hash := int64(routing.KeyHash(key))
		message.HashId = &hash
	}
	return message, checkText(message)
}

// trace returns the properties of the tracer, whose faults do not fail a send.
func (s *settings) trace(ctx context.Context) map[string]string {
	properties := map[string]string{}
	if s.tracer != nil {
		s.tell(func() { s.tracer.Inject(ctx, properties) })
	}
	for name, value := range properties {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			s.logger.Error("a tracer's property is not valid UTF-8", "name", name, "value", value)
			delete(properties, name)
		}
	}
	return properties
}

func checkText(message *producer.Message) error {
	texts := []string{message.Topic, message.GetKey(), message.GetTags()}
	for name, value := range message.Properties {
		texts = append(texts, name, value)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%q in a message to %s is not valid UTF-8",
				text, message.Topic)
		}
	}
	if size := sizeOf(message); size > maxRequestBytes {
		return fmt.Errorf("a message to %s has %d bytes: the limit is %d",
			message.Topic, size, maxRequestBytes)
	}
	return nil
}

// sizeOf returns an upper estimate of a message's size on the wire.
func sizeOf(message *producer.Message) int {
	size := 128 + len(message.Body) + len(message.Topic) + len(message.GetKey()) +
		len(message.GetTags()) + len(message.GetToken())
	for name, value := range message.Properties {
		size += len(name) + len(value) + 16
	}
	return size
}

// delayed returns the same message for later delivery.
func delayed(message *producer.Message, at time.Time) *producer.DelayMessage {
	id, kind, seconds := message.Properties[uniqueID], int32(delayedOnce), at.Unix()
	if at.Nanosecond() > 0 {
		seconds++
	}
	properties := message.Properties
	if message.Key != nil {
		properties = maps.Clone(properties)
		properties[keys] = *message.Key
	}
	return &producer.DelayMessage{
		Topic: message.Topic, Body: message.Body, Tags: message.GetTags(), Action: addDelayed,
		Timestamp: &seconds, Dmsgtype: &kind, UUID: &id, Version: message.Version,
		Properties: properties, Token: message.Token,
	}
}

func notEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
