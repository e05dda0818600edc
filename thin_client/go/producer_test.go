package orderlane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/producer"
)

func producerOf(t *testing.T, p *fakeProxy, options ...ProducerOption) *Producer {
	t.Helper()
	made, err := NewProducer(p.address, append([]ProducerOption{silent}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close() })
	return made
}

func refusing(code int32, message string) func(thrift.TStruct) thrift.TStruct {
	return func(thrift.TStruct) thrift.TStruct {
		result := &producer.Result_{Code: code, Msg: message}
		return &producer.ProducerServiceSendSyncResult{Success: result}
	}
}

// only returns the message of the single sendSync received.
func (p *fakeProxy) only() *producer.Message {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sent) != 1 {
		p.t.Fatalf("got %d requests", len(p.sent))
	}
	return p.sent[0].(*producer.ProducerServiceSendSyncArgs).Message
}

func TestAMessageIsSentWithItsFields(t *testing.T) {
	p := startProxy(t)
	ctx := context.WithValue(context.Background(), carry{}, "00-5-6-01")
	id, err := producerOf(t, p, WithToken("secret"), WithTracer(carry{})).Send(ctx, Outgoing{
		Topic: "orders", Body: []byte("b"), Key: "k", Tag: "t", Route: ShardingKey("N14228"),
		Properties: map[string]string{"a": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := p.only()
	want := fmt.Sprintf("orders b k t -2015042201 -1 secret map[%s:%s a:1 traceparent:00-5-6-01]",
		uniqueID, id)
	got := fmt.Sprint(m.Topic, " ", string(m.Body), " ", m.GetKey(), " ", m.GetTags(), " ",
		m.GetHashId(), " ", m.PartitionId, " ", m.GetToken(), " ", m.Properties)
	if got != want || len(id) != 32 {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// faulty is a tracer that panics after it has injected bytes that are no text.
type faulty struct{ carry }

func (faulty) Inject(_ context.Context, carrier map[string]string) {
	carrier["traceparent"] = "\xff"
	panic("inject")
}

func TestAFaultOfTheTracerDoesNotFailASend(t *testing.T) {
	p := startProxy(t)
	sender := producerOf(t, p, WithTracer(faulty{}))
	if _, err := sender.Send(context.Background(), Outgoing{Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	if properties := p.only().Properties; len(properties) != 1 {
		t.Errorf("got %v", properties)
	}
}

func TestTheRouteChoosesTheQueue(t *testing.T) {
	const none = "none -1"
	routes := []struct {
		name    string
		message Outgoing
		want    string
	}{
		{"without a key", Outgoing{}, none},
		{"the key", Outgoing{Key: "abc"}, "96354 -1"},
		{"a sharding key before it", Outgoing{Key: "x", Route: ShardingKey("abc")}, "96354 -1"},
		{"an empty sharding key", Outgoing{Key: "x", Route: ShardingKey("")}, "0 -1"},
		{"a path", Outgoing{Body: []byte(`{"a":"abc"}`), Route: ShardingPath("$.a")}, "96354 -1"},
		{"a path to nothing", Outgoing{Body: []byte(`{}`), Route: ShardingPath("$.a")}, none},
		{"and with a key",
			Outgoing{Key: "abc", Body: []byte(`{}`), Route: ShardingPath("$.a")}, "96354 -1"},
		{"a queue", Outgoing{Key: "abc", Route: Queue(3)}, "none 3"},
		{"any queue", Outgoing{Key: "abc", Route: RandomQueue()}, "none -2"},
	}
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			p := startProxy(t)
			route.message.Topic = "orders"
			if _, err := producerOf(t, p).Send(context.Background(), route.message); err != nil {
				t.Fatal(err)
			}
			m := p.only()
			hash := "none"
			if m.HashId != nil {
				hash = fmt.Sprint(*m.HashId)
			}
			if got := fmt.Sprint(hash, " ", m.PartitionId); got != route.want {
				t.Errorf("got %s, want %s", got, route.want)
			}
		})
	}
}

func TestInvalidMessagesAreRefusedBeforeSending(t *testing.T) {
	p := startProxy(t)
	bad := map[string]Outgoing{
		"Topic is empty":       {},
		"Queue is -1":          {Topic: "orders", Route: Queue(-1)},
		"expected 0 to 2147":   {Topic: "orders", Route: Queue(1 << 31)},
		"the sharding key":     {Topic: "orders", Route: ShardingKey("\xff")},
		"not a valid path":     {Topic: "orders", Route: ShardingPath("$..a")},
		"is not JSON":          {Topic: "orders", Route: ShardingPath("$.a"), Body: []byte("no")},
		"expected 0 or more":   {Topic: "orders", Delay: -1},
		"is not valid UTF-8":   {Topic: "orders", Key: "\xff"},
		"the limit is 5000000": {Topic: "orders", Body: make([]byte, maxRequestBytes)},
	}
	for want, message := range bad {
		good := Outgoing{Topic: "orders"}
		_, err := producerOf(t, p).SendBatch(context.Background(), []Outgoing{good, message})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if len(p.sent) > 0 {
		t.Errorf("got %d requests", len(p.sent))
	}
}

// After a lost answer the outcome is unknown until another answer confirms the message.
func TestAMessageIsResentUnderTheSameID(t *testing.T) {
	p := startProxy(t)
	p.script("sendSync", hangUp)
	p.script("sendSync", refusing(15, "too fast"))
	id, err := producerOf(t, p).Send(context.Background(), Outgoing{Topic: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	for _, sent := range p.sent {
		m := sent.(*producer.ProducerServiceSendSyncArgs).Message
		if m.Properties[uniqueID] != id {
			t.Errorf("an id is %s, the first was %s", m.Properties[uniqueID], id)
		}
	}
	if len(p.sent) != 3 {
		t.Errorf("sent %d times", len(p.sent))
	}
}

func TestBatchErrorsNameTheirMessages(t *testing.T) {
	p := startProxy(t)
	reason := "too large"
	p.script("sendBatchSync", func(thrift.TStruct) thrift.TStruct {
		return &producer.ProducerServiceSendBatchSyncResult{Success: &producer.Result_{
			Code: 11, Msg: reason, Messages: []*producer.MessageResult_{
				{Code: 0}, {Code: 11, Msg: &reason}, {Code: 70, Msg: ptr("behind it")}, {Code: 12},
			},
		}}
	})
	messages := make([]Outgoing, 4)
	for n := range messages {
		messages[n] = Outgoing{
			Topic: "orders", Properties: map[string]string{uniqueID: fmt.Sprintf("M%d", n)},
		}
	}
	ids, err := producerOf(t, p).SendBatch(context.Background(), messages)
	var failed *SendError
	if !errors.As(err, &failed) || failed.Code != 11 || !failed.OutcomeUnknown {
		t.Fatalf("got %v", err)
	}
	want := "[{M1 too large 11 false} {M2 behind it 70 false} {M3 behind it 12 true}]"
	if got := fmt.Sprint(failed.Failures); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if fmt.Sprint(ids) != "[M0 M1 M2 M3]" {
		t.Errorf("ids: %v", ids)
	}
	if !strings.Contains(err.Error(), "(message M1 and 2 others: may have been stored)") {
		t.Errorf("sentence: %v", err)
	}
}

func TestARefusedBatchIsNotStored(t *testing.T) {
	for code, unknown := range map[int32]bool{11: false, 71: false, 14: true} {
		p := startProxy(t)
		p.script("sendBatchSync", func(thrift.TStruct) thrift.TStruct {
			result := &producer.Result_{Code: code, Msg: "no"}
			return &producer.ProducerServiceSendBatchSyncResult{Success: result}
		})
		messages := []Outgoing{{Topic: "orders"}, {Topic: "orders"}}
		_, err := producerOf(t, p).SendBatch(context.Background(), messages)
		var failed *SendError
		if !errors.As(err, &failed) || failed.OutcomeUnknown != unknown {
			t.Errorf("%d: got %v", code, err)
		}
	}
}

// Messages known to be stored are not sent again.
func TestUnstoredMessagesOfABatchAreResent(t *testing.T) {
	p := startProxy(t)
	p.script("sendBatchSync", func(thrift.TStruct) thrift.TStruct {
		return &producer.ProducerServiceSendBatchSyncResult{Success: &producer.Result_{
			Code: 15, Messages: []*producer.MessageResult_{{Code: 0}, {Code: 15}},
		}}
	})
	messages := []Outgoing{{Topic: "orders", Key: "a"}, {Topic: "orders", Key: "b"}}
	if _, err := producerOf(t, p).SendBatch(context.Background(), messages); err != nil {
		t.Fatal(err)
	}
	again := p.sent[1].(*producer.ProducerServiceSendSyncArgs).Message
	if again.GetKey() != "b" {
		t.Errorf("%s was sent again", again.GetKey())
	}
}

func TestASendEndsAtItsTimeout(t *testing.T) {
	ends := map[string]func() (context.Context, context.CancelFunc){
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 100*time.Millisecond)
		},
		"cancelled": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		},
		"timeout": func() (context.Context, context.CancelFunc) {
			return context.WithCancel(context.Background())
		},
	}
	for name, begin := range ends {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t)
			over := make(chan struct{})
			defer close(over)
			p.script("sendSync", func(thrift.TStruct) thrift.TStruct {
				<-over
				return nil
			})
			ctx, cancel := begin()
			defer cancel()
			sender := producerOf(t, p, WithSendTimeout(100*time.Millisecond))
			_, err := sender.Send(ctx, Outgoing{Topic: "orders"})
			var failed *SendError
			if !errors.As(err, &failed) || !failed.OutcomeUnknown || failed.Code != 0 {
				t.Errorf("got %v", err)
			}
			if name == "cancelled" && !errors.Is(err, context.Canceled) {
				t.Errorf("the cause is missing: %v", err)
			}
		})
	}
}

// Waiting messages must not overtake those that the application sends again.
func TestCallsWaitingBehindAFailedSendOfTheirKeyFail(t *testing.T) {
	p := startProxy(t)
	begun, go1 := make(chan struct{}), make(chan struct{})
	p.script("sendSync", func(thrift.TStruct) thrift.TStruct {
		close(begun)
		<-go1
		return refusing(11, "illegal")(nil)
	})
	sender := producerOf(t, p)
	results := map[string]chan error{"first": nil, "behind": nil, "other": nil}
	send := func(name, key string) {
		result := make(chan error, 1)
		results[name] = result
		before := sender.entered()
		go func() {
			_, err := sender.Send(context.Background(), Outgoing{Topic: "orders", Key: key})
			result <- err
		}()
		for sender.entered() == before {
			time.Sleep(time.Millisecond)
		}
	}
	send("first", "a")
	<-begun
	send("behind", "a")
	send("other", "b")
	close(go1)
	var failed *SendError
	if err := <-results["first"]; !errors.As(err, &failed) || failed.Code != 11 {
		t.Errorf("first: %v", err)
	}
	err := <-results["behind"]
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "an earlier send of its key") ||
		failed.OutcomeUnknown {
		t.Errorf("behind: %v", err)
	}
	if err := <-results["other"]; err != nil {
		t.Errorf("other: %v", err)
	}
	if _, err := sender.Send(context.Background(), Outgoing{Topic: "orders", Key: "a"}); err != nil {
		t.Errorf("later: %v", err)
	}
}

func (p *Producer) entered() int {
	p.order.mu.Lock()
	defer p.order.mu.Unlock()
	return p.order.last
}

func TestASendWhoseContextHasEndedIsNotSent(t *testing.T) {
	p := startProxy(t)
	sender := producerOf(t, p)
	ctx, cancel := context.WithCancelCause(context.Background())
	if _, err := sender.Send(ctx, Outgoing{Topic: "orders"}); err != nil { // connects
		t.Fatal(err)
	}
	cause := errors.New("enough")
	cancel(cause)
	_, err := sender.Send(ctx, Outgoing{Topic: "orders"})
	var failed *SendError
	if !errors.As(err, &failed) || failed.OutcomeUnknown || !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if _, err := sender.Send(context.Background(), Outgoing{Topic: "orders"}); err != nil {
		t.Error(err)
	}
	if len(p.sent) != 2 {
		t.Errorf("%d messages were sent", len(p.sent))
	}
}

func TestLargeBatchesTakeSeveralRequests(t *testing.T) {
	p := startProxy(t)
	messages := make([]Outgoing, 5)
	for n := range messages {
		messages[n] = Outgoing{Topic: "orders", Key: "a", Body: make([]byte, batchBytes/2-1000)}
	}
	if _, err := producerOf(t, p).SendBatch(context.Background(), messages); err != nil {
		t.Fatal(err)
	}
	if len(p.sent) != 3 {
		t.Errorf("got %d requests", len(p.sent))
	}
}

func TestARefusedDelayHasACode(t *testing.T) {
	p := startProxy(t)
	message := Outgoing{Topic: "orders", Body: []byte("b"), Key: "k", Delay: 90 * time.Second}
	before := time.Now()
	id, err := producerOf(t, p).Send(context.Background(), message)
	var failed *SendError
	if !errors.As(err, &failed) || failed.Code != 18 || failed.OutcomeUnknown {
		t.Fatalf("got %v", err)
	}
	m := p.sent[0].(*producer.ProducerServiceSendDelaySyncArgs).DelayMessage
	wait := time.Unix(m.GetTimestamp(), 0).Sub(before)
	if wait < 90*time.Second || wait > 95*time.Second || m.GetUUID() != id || m.Action != 1 ||
		m.Properties[keys] != "k" {
		t.Errorf("after %v: %v", wait, m)
	}
}

func TestAClosedProducerSendsNothing(t *testing.T) {
	sender := producerOf(t, startProxy(t))
	sender.Close()
	_, err := sender.Send(context.Background(), Outgoing{Topic: "orders"})
	if !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func ptr[T any](value T) *T { return &value }
