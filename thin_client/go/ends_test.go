package orderlane

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"
)

// odd is an application's error whose methods panic on nil.
type odd struct{ cause error }

func (e *odd) Error() string { return e.cause.Error() }
func (e *odd) Unwrap() error { return e.cause }

// A nil pointer of a concrete error type makes a non-nil error.
func TestAnErrorWhoseMethodsPanicMeansRetry(t *testing.T) {
	p := startProxy(t)
	outcomes := map[string]error{"odd": (*odd)(nil), "reject": (*RejectError)(nil)}
	c := consumerOf(t, p).handling(func(_ context.Context, m *Message) error {
		return outcomes[m.Key]
	})
	p.put("odd", "reject", "ok")
	p.untilVerdict(1, "retry")
	p.untilVerdict(2, "retry")
	p.untilVerdict(3, "ok")
	c.stop()
	c.endsWell()
	if p.reasons[1] != "*orderlane.odd: <nil>" {
		t.Errorf("reason: %q", p.reasons[1])
	}
}

// clumsy is a tracer that panics.
type clumsy struct{ carry }

func (clumsy) Extract(context.Context, map[string]string) context.Context { panic("extract") }

func TestHooksThatPanicAreHarmless(t *testing.T) {
	p := startProxy(t)
	p.leaseMs = 300
	p.notHeld[1] = true
	p.script("pull", hangUp)
	var mu sync.Mutex
	told := map[string]bool{}
	fail := func(what string) {
		mu.Lock()
		told[what] = true
		mu.Unlock()
		panic(what)
	}
	c := consumerOf(t, p, WithConcurrency(1), WithTracer(clumsy{}), WithHooks(Hooks{
		HandleStart: func(*Message) { fail("start") },
		HandleEnd:   func(*Message, string) { fail("end") },
		Pulled:      func(int) { fail("pulled") },
		Settled:     func(int, int) { fail("settled") },
		LeaseLost:   func(*Message) { fail("lost") },
		Error:       func(error) { fail("error") },
	}))
	c.handling(func(ctx context.Context, m *Message) error {
		switch m.LeaseID {
		case 1:
			<-ctx.Done()
		case 2:
			c.Stop() // so that the verdict cannot ride on a pull
		}
		return nil
	})
	p.put("a", "b")
	c.endsWell()
	p.untilVerdict(2, "ok")
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 6 {
		t.Errorf("told: %v", told)
	}
}

// closing closes the producer in the middle of a send, as another goroutine may.
type closing struct {
	carry
	*Producer
}

func (c *closing) Inject(context.Context, map[string]string) { c.Close() }

func TestASendAfterCloseIsRefused(t *testing.T) {
	p := startProxy(t)
	c := &closing{}
	c.Producer = producerOf(t, p, WithTracer(c))
	if _, err := c.Send(context.Background(), Outgoing{Topic: "t"}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if c.connection != nil {
		t.Error("the connection was not closed")
	}
}

func TestUnlimitedTimesAreCapped(t *testing.T) {
	const endless = time.Duration(math.MaxInt64)
	p := startProxy(t)
	c := consumerOf(t, p,
		WithRequestTimeout(endless), WithAckLinger(endless), WithDrainTimeout(endless))
	c.handling(func(context.Context, *Message) error { return nil })
	p.put("a")
	p.untilVerdict(1, "ok")
	c.stop()
	c.endsWell()
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(1<<40, 0))
	defer cancel()
	for _, ctx := range []context.Context{context.Background(), ctx} {
		producer := producerOf(t, p, WithSendTimeout(endless))
		if _, err := producer.Send(ctx, Outgoing{Topic: "t"}); err != nil {
			t.Error(err)
		}
	}
	puller, err := NewPuller(p.address, "g", WithRequestTimeout(endless))
	if err != nil {
		t.Fatal(err)
	}
	defer puller.Close()
	p.put("a")
	if messages, err := puller.Pull(ctx, 1, endless); err != nil || len(messages) != 1 {
		t.Errorf("got %v, %v", messages, err)
	}
}
