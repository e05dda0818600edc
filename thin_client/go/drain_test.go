package orderlane

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

func TestS8TheDrainWaitsForHandlersAndReleasesTheRest(t *testing.T) {
	p := startProxy(t)
	begun := make(chan struct{})
	c := consumerOf(t, p, WithConcurrency(1), WithPrefetch(4)).handling(
		func(ctx context.Context, m *Message) error {
			close(begun)
			time.Sleep(50 * time.Millisecond)
			return ctx.Err() // not cancelled with Run's context
		})
	p.put("a", "b", "c")
	<-begun
	c.stop()
	c.endsWell()
	p.untilVerdict(1, "ok")
	p.untilVerdict(2, "defer")
	p.untilVerdict(3, "defer")
}

func TestADrainTimeoutCancelsHandlers(t *testing.T) {
	for name, end := range map[string]func(c *consuming){
		"timeout": func(c *consuming) { c.stop() },
		"at once": func(c *consuming) { c.StopNow() },
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t)
			begun, free := make(chan struct{}, 2), make(chan struct{})
			var stubborn context.Context
			defer close(free)
			limit := 100 * time.Millisecond
			if name == "at once" {
				limit = time.Hour
			}
			c := consumerOf(t, p, WithDrainTimeout(limit)).handling(
				func(ctx context.Context, m *Message) error {
					if m.Key == "stubborn" {
						stubborn = ctx
					}
					begun <- struct{}{}
					if m.Key == "stubborn" {
						<-free
						return nil
					}
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), ErrDrainTimeout) {
						t.Errorf("cause: %v", context.Cause(ctx))
					}
					return ctx.Err()
				})
			p.put("a", "stubborn")
			<-begun
			<-begun
			end(c)
			c.endsWell()
			if cause := context.Cause(stubborn); !errors.Is(cause, ErrDrainTimeout) {
				t.Errorf("Run has returned, and the context of its handler goes on: %v", cause)
			}
			p.untilVerdict(1, "defer")
			if p.verdicts[2] != "" {
				t.Errorf("verdict of the handler that did not end: %s", p.verdicts[2])
			}
		})
	}
}

// A pull sent then would delay the drain and take messages away from other clients.
func TestAStopDuringConnectPreventsPulls(t *testing.T) {
	p := startProxy(t)
	c := consumerOf(t, p)
	c.session = session.New(c.settings.session(1))
	c.feeder = newFeeder(c.Consumer)
	defer c.feeder.pulls.hangUp()
	c.Stop() // after its goroutine has seen that a pull is due
	if failed := c.feeder.pullOnce(); failed || c.feeder.pulls.connection == nil {
		t.Error("no connection")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pulls) > 0 {
		t.Errorf("%d pulls arrived", len(p.pulls))
	}
}

func TestARefusalEndsTheConsumer(t *testing.T) {
	p := startProxy(t)
	p.script("pull", func(thrift.TStruct) thrift.TStruct {
		return &consumer.ConsumerServicePullResult{
			Error: &consumer.PullException{Code: 404, Message: "there is no group g"},
		}
	})
	c := consumerOf(t, p).handling(func(context.Context, *Message) error { return nil })
	err := c.ended()
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Code != 404 || Retriable(err) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(err.Error(), "there is no group g") {
		t.Errorf("the error lacks the proxy's text: %v", err)
	}
}

func TestAConsumerIsUsedOnce(t *testing.T) {
	p := startProxy(t)
	c := consumerOf(t, p)
	c.Stop() // before the start: it ends at once
	if err := c.Run(context.Background(), ignore); err != nil {
		t.Error(err)
	}
	if err := c.Run(context.Background(), ignore); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	for range c.Messages(context.Background()) {
		t.Error("got a message")
	}
	if !errors.Is(c.Err(), ErrClosed) {
		t.Errorf("got %v", c.Err())
	}
}

// ignore is a handler that acks all messages.
func ignore(context.Context, *Message) error { return nil }

func TestTheContextOfNewConsumerEndsTheConsumer(t *testing.T) {
	p := startProxy(t)
	ctx, cancel := context.WithCancel(context.Background())
	c, err := NewConsumer(ctx, p.address, "g", silent)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := c.Run(context.Background(), ignore); err != nil {
		t.Error(err)
	}
}
