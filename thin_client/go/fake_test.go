package orderlane

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
	"github.com/orderlane/orderlane/thin_client/go/internal/gen/producer"
)

// fakeProxy gives out the messages put into it and records requests. A script replaces the plain
// answer to one call of a method; nil from it closes the connection.
type fakeProxy struct {
	t        *testing.T
	listener net.Listener
	address  string

	mu       sync.Mutex
	changed  chan struct{} // closed at the next change
	ready    []*consumer.Message
	leases   int64
	leaseMs  int32
	pulls    []*consumer.PullRequest
	verdicts map[int64]string
	reasons  map[int64]string
	notHeld  map[int64]bool
	sent     []thrift.TStruct
	scripts  map[string][]func(request thrift.TStruct) thrift.TStruct
}

func startProxy(t *testing.T) *fakeProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &fakeProxy{
		t: t, listener: listener, address: listener.Addr().String(), leaseMs: 2000,
		changed: make(chan struct{}), verdicts: map[int64]string{}, reasons: map[int64]string{},
		notHeld: map[int64]bool{}, scripts: map[string][]func(thrift.TStruct) thrift.TStruct{},
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(socket)
		}
	}()
	return p
}

// put makes a message of each key ready; lease ids count from 1. An empty key means no key.
func (p *fakeProxy) put(keys ...string) {
	p.update(func() {
		for _, key := range keys {
			p.leases++
			id, offset := p.leases, p.leases-1
			message := &consumer.Message{
				LeaseId: &id, Offset: offset, Value: []byte("{}"), Key: key,
				Properties: map[string]string{"traceparent": "00-1-2-01", "other": "x"},
			}
			if key != "" {
				message.OrderKey = []byte(key)
			}
			p.ready = append(p.ready, message)
		}
	})
}

func (p *fakeProxy) script(method string, answer func(thrift.TStruct) thrift.TStruct) {
	p.update(func() { p.scripts[method] = append(p.scripts[method], answer) })
}

func (p *fakeProxy) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// until waits for a condition on the proxy's state.
func (p *fakeProxy) until(event string, condition func() bool) {
	p.t.Helper()
	limit := time.After(10 * time.Second)
	for {
		p.mu.Lock()
		holds, changed := condition(), p.changed
		p.mu.Unlock()
		if holds {
			return
		}
		select {
		case <-changed:
		case <-limit:
			p.t.Fatalf("%s: timed out; verdicts %v", event, p.verdicts)
		}
	}
}

// untilVerdict waits for the verdict on a lease.
func (p *fakeProxy) untilVerdict(lease int64, want string) {
	p.t.Helper()
	p.until(fmt.Sprintf("the verdict on %d", lease), func() bool { return p.verdicts[lease] != "" })
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.verdicts[lease]; got != want {
		p.t.Errorf("lease %d: got %s, want %s", lease, got, want)
	}
}

func (p *fakeProxy) serve(socket net.Conn) {
	defer socket.Close()
	for {
		var head [4]byte
		if _, err := io.ReadFull(socket, head[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(socket, frame); err != nil {
			return
		}
		answer := p.answer(frame)
		if answer == nil {
			return
		}
		if _, err := socket.Write(answer); err != nil {
			return
		}
	}
}

func (p *fakeProxy) answer(frame []byte) []byte {
	ctx := context.Background()
	in := thrift.NewTMemoryBuffer()
	in.Write(frame)
	protocol := thrift.NewTCompactProtocolConf(in, nil)
	method, _, sequence, err := protocol.ReadMessageBegin(ctx)
	arguments := map[string]thrift.TStruct{
		"pull": &consumer.ConsumerServicePullArgs{}, "settle": &consumer.ConsumerServiceSettleArgs{},
		"extend":        &consumer.ConsumerServiceExtendArgs{},
		"sendSync":      &producer.ProducerServiceSendSyncArgs{},
		"sendBatchSync": &producer.ProducerServiceSendBatchSyncArgs{},
		"sendDelaySync": &producer.ProducerServiceSendDelaySyncArgs{},
	}[method]
	if err != nil || arguments.Read(ctx, protocol) != nil {
		p.t.Errorf("%s cannot be decoded: %v", method, err)
		return nil
	}
	plain := p.plain(arguments)
	var scripted func(thrift.TStruct) thrift.TStruct
	p.update(func() {
		if scripts := p.scripts[method]; len(scripts) > 0 {
			scripted, p.scripts[method] = scripts[0], scripts[1:]
		}
	})
	if scripted != nil {
		plain = func() thrift.TStruct { return scripted(arguments) }
	}
	result := plain()
	if result == nil {
		return nil
	}
	out := thrift.NewTMemoryBuffer()
	if err := encode(out, method, sequence, result); err != nil {
		p.t.Error(err)
		return nil
	}
	bytes := out.Bytes()
	bytes[5] = bytes[5]&0x1f | byte(thrift.REPLY)<<5
	return bytes
}

// plain records the request and returns its plain answer.
func (p *fakeProxy) plain(arguments thrift.TStruct) func() thrift.TStruct {
	switch arguments := arguments.(type) {
	case *consumer.ConsumerServicePullArgs:
		p.update(func() { p.pulls = append(p.pulls, arguments.Request) })
		p.judge(arguments.Request.Acks)
		return func() thrift.TStruct { return p.pull(arguments.Request) }
	case *consumer.ConsumerServiceSettleArgs:
		p.judge(arguments.Request.Acks)
		var held consumer.AckAnswer
		for _, batch := range arguments.Request.Acks {
			for _, id := range batch.Acked {
				held.NotHeld = append(held.NotHeld, p.refusals(batch.Context, id)...)
			}
		}
		answer := &consumer.ConsumerServiceSettleResult{Success: &held}
		return func() thrift.TStruct { return answer }
	case *consumer.ConsumerServiceExtendArgs:
		var held consumer.AckAnswer
		for _, lease := range arguments.Request.Leases {
			held.NotHeld = append(held.NotHeld, p.refusals(lease.Context, lease.LeaseId)...)
		}
		answer := &consumer.ConsumerServiceExtendResult{Success: &held}
		return func() thrift.TStruct { return answer }
	}
	p.update(func() { p.sent = append(p.sent, arguments) })
	stored := &producer.Result_{Msg: "OK"}
	var answer thrift.TStruct = &producer.ProducerServiceSendSyncResult{Success: stored}
	switch arguments.(type) {
	case *producer.ProducerServiceSendBatchSyncArgs:
		answer = &producer.ProducerServiceSendBatchSyncResult{Success: stored}
	case *producer.ProducerServiceSendDelaySyncArgs:
		none := &producer.DelayResult_{Code: 18, Msg: "no delays"}
		answer = &producer.ProducerServiceSendDelaySyncResult{Success: none}
	}
	return func() thrift.TStruct { return answer }
}

func (p *fakeProxy) refusals(context *consumer.Context, id int64) []*consumer.LeaseRef {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.notHeld[id] {
		return nil
	}
	return []*consumer.LeaseRef{{Context: context, LeaseId: id}}
}

func (p *fakeProxy) judge(batches []*consumer.AckBatch) {
	p.update(func() {
		for _, batch := range batches {
			for _, id := range batch.Acked {
				p.verdicts[id] = "ok"
			}
			for _, id := range batch.Released {
				p.verdicts[id] = "defer"
			}
			for _, nack := range batch.Nacked {
				p.verdicts[nack.LeaseId] = "retry"
				if nack.GetReject() {
					p.verdicts[nack.LeaseId] = "reject"
				} else if nack.RetryAfterMs != nil {
					p.verdicts[nack.LeaseId] = fmt.Sprintf("retry after %d ms", *nack.RetryAfterMs)
				}
				p.reasons[nack.LeaseId] = nack.GetReason()
			}
		}
	})
}

// pull waits for messages as a proxy does, but not as long.
func (p *fakeProxy) pull(request *consumer.PullRequest) thrift.TStruct {
	linger := time.Duration(request.GetMaxLingerTime()) * time.Millisecond
	limit := time.After(min(linger, 100*time.Millisecond))
	for {
		p.mu.Lock()
		count := min(len(p.ready), int(request.GetMaxBatchSize()))
		messages, changed := slices.Clone(p.ready[:count]), p.changed
		p.ready = p.ready[count:]
		p.mu.Unlock()
		if count > 0 {
			return p.batch(messages)
		}
		select {
		case <-changed:
		case <-limit:
			return p.batch(nil)
		}
	}
}

func (p *fakeProxy) batch(messages []*consumer.Message) thrift.TStruct {
	answer := &consumer.PullResponse{
		Context: &consumer.Context{}, Messages: messages, LeaseMs: &p.leaseMs, Home: &p.address,
	}
	if len(messages) > 0 {
		answer.Context = &consumer.Context{GroupId: "g", Topic: "orders", Qid: "broker-a_0#1"}
	}
	return &consumer.ConsumerServicePullResult{Success: answer}
}

// hangUp is a script that closes the connection.
func hangUp(thrift.TStruct) thrift.TStruct { return nil }

// silent discards log output.
var silent = WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
