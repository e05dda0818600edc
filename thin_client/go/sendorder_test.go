package orderlane

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"
)

func TestACallThatEndsWhileItWaitsHoldsBackOnlyThoseBehindIt(t *testing.T) {
	var order sendOrder
	lane := sendLane{topic: "orders", hash: 1, hashed: true}
	lanes := []sendLane{lane}
	ahead, ended, behind := order.enter(), order.enter(), order.enter()
	order.leave(ended, lanes)
	since, alsoEnded, last := order.enter(), order.enter(), order.enter()
	order.leave(alsoEnded, lanes)
	for n, each := range []struct {
		ticket   ticket
		heldBack bool
	}{{ahead, false}, {behind, true}, {since, false}, {last, true}} {
		if got := order.heldBack(each.ticket, lanes); got != each.heldBack {
			t.Errorf("call %d: held back: %v", n, got)
		}
	}
	order.leave(ahead, lanes)
	if !order.heldBack(since, lanes) {
		t.Error("a call overtakes one of its key that failed")
	}
	for _, each := range []ticket{behind, since, last} {
		order.leave(each, nil)
	}
	if len(order.failed) > 0 {
		t.Errorf("no call waits, and %v is remembered", order.failed)
	}
}

func TestACancelledCallDoesNotBlockTheNext(t *testing.T) {
	p := startProxy(t)
	begun, free := make(chan struct{}), make(chan struct{})
	p.script("sendSync", func(thrift.TStruct) thrift.TStruct {
		close(begun)
		<-free
		return refusing(0, "OK")(nil)
	})
	sender := producerOf(t, p)
	first := make(chan error, 1)
	go func() {
		_, err := sender.Send(context.Background(), Outgoing{Topic: "orders"})
		first <- err
	}()
	<-begun
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := sender.Send(ctx, Outgoing{Topic: "orders"})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("the call with a deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	time.AfterFunc(time.Millisecond, cancel)
	_, err = sender.Send(ctx, Outgoing{Topic: "orders"})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "its context ended") {
		t.Errorf("the cancelled call: %v", err)
	}
	close(free)
	if err := <-first; err != nil {
		t.Errorf("the first one: %v", err)
	}
	if _, err := sender.Send(context.Background(), Outgoing{Topic: "orders"}); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// A call may have a context with a later deadline than the producer's time-out.
func TestASendWaitsForEarlierOnesWithinTheSendTimeout(t *testing.T) {
	p := startProxy(t)
	begun, free := make(chan struct{}), make(chan struct{})
	p.script("sendSync", func(thrift.TStruct) thrift.TStruct {
		close(begun)
		<-free
		return refusing(0, "OK")(nil)
	})
	sender := producerOf(t, p, WithSendTimeout(20*time.Millisecond))
	first := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := sender.Send(ctx, Outgoing{Topic: "orders"})
		first <- err
	}()
	<-begun
	_, err := sender.Send(context.Background(), Outgoing{Topic: "orders"})
	var failed *SendError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "timed out while waiting") {
		t.Errorf("the hurried call: %v", err)
	}
	if len(first) > 0 {
		t.Error("it waited for the first one")
	}
	close(free)
	if err := <-first; err != nil {
		t.Errorf("the first one: %v", err)
	}
}
