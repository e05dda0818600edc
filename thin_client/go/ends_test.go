package orderlane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
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

// sour is an error whose methods panic with nil, which old programs cannot recover.
type sour struct{}

func (sour) Error() string { panic(nil) }

func TestAPanicWithNilMeansRetry(t *testing.T) {
	for _, setting := range []string{"panicnil=0", "panicnil=1"} {
		t.Run(setting, func(t *testing.T) {
			t.Setenv("GODEBUG", setting)
			p := startProxy(t)
			c := consumerOf(t, p, WithConcurrency(1)).handling(
				func(_ context.Context, m *Message) error {
					switch m.Key {
					case "panic":
						panic(nil)
					case "sour":
						return sour{}
					}
					return nil
				})
			p.put("panic", "sour", "ok")
			p.untilVerdict(1, "retry")
			p.untilVerdict(2, "retry")
			p.untilVerdict(3, "ok")
			c.stop()
			c.endsWell()
		})
	}
}

// A hook of a test may call FailNow, which ends the goroutine.
func TestAGoexitInAHookHoldsNoMessage(t *testing.T) {
	p := startProxy(t)
	p.leaseMs = 300
	p.notHeld[2] = true
	p.script("pull", hangUp)
	exit := runtime.Goexit
	c := consumerOf(t, p, WithConcurrency(1), WithDrainTimeout(time.Second), WithHooks(Hooks{
		HandleStart: func(m *Message) {
			if m.LeaseID == 1 {
				exit()
			}
		},
		HandleEnd: func(*Message, string) { exit() },
		Pulled:    func(int) { exit() },
		Settled:   func(int, int) { exit() },
		LeaseLost: func(*Message) { exit() },
		Error:     func(error) { exit() },
	}))
	c.handling(func(ctx context.Context, m *Message) error {
		if m.LeaseID == 2 {
			<-ctx.Done() // LeaseLost
		}
		return nil
	})
	p.put("a")
	p.untilVerdict(1, "retry") // not handled
	p.put("b", "c")
	p.untilVerdict(3, "ok")
	c.stop()
	c.endsWell()
}

// gruff is a log handler that panics.
type gruff struct{}

func (gruff) Enabled(context.Context, slog.Level) bool  { return true }
func (gruff) Handle(context.Context, slog.Record) error { panic("handle") }
func (g gruff) WithAttrs([]slog.Attr) slog.Handler      { return g }
func (g gruff) WithGroup(string) slog.Handler           { return g }

func TestALogHandlerThatPanicsIsHarmless(t *testing.T) {
	p := startProxy(t)
	p.script("pull", hangUp)
	c := consumerOf(t, p, WithLogger(slog.New(gruff{})), WithConcurrency(1))
	c.handling(func(_ context.Context, m *Message) error {
		switch m.Key {
		case "panic":
			panic("so what")
		case "error":
			return errors.New("no luck")
		}
		return nil
	})
	p.put("panic", "error", "ok")
	p.untilVerdict(1, "retry")
	p.untilVerdict(2, "retry")
	p.untilVerdict(3, "ok")
	c.stop()
	c.endsWell()
}

func TestAHandlerMayChangeItsBatch(t *testing.T) {
	p := startProxy(t)
	p.put("a", "a", "a")
	var mu sync.Mutex
	ended := map[int64]string{}
	c := consumerOf(t, p, WithHooks(Hooks{HandleEnd: func(m *Message, outcome string) {
		mu.Lock()
		defer mu.Unlock()
		ended[m.LeaseID] = outcome
	}}))
	c.with(func(ctx context.Context) error {
		return c.RunBatches(ctx, func(_ context.Context, batch *KeyBatch) (int, error) {
			clear(batch.Messages)
			return 1, errors.New("the second")
		})
	})
	for n, want := range []string{"ok", "retry", "defer"} {
		p.untilVerdict(int64(n+1), want)
	}
	c.stop()
	c.endsWell()
	if got := fmt.Sprint(ended); got != "map[1:ok 2:retry 3:defer]" {
		t.Errorf("hooks were called with %s", got)
	}
}

func TestANilHandlerOrContextIsRefused(t *testing.T) {
	p := startProxy(t)
	p.put("a")
	c := consumerOf(t, p)
	ctx := context.Background()
	var none context.Context
	refusals := map[string]error{
		"Run got a nil handler":        c.Run(ctx, nil),
		"RunBatches got a nil handler": c.RunBatches(ctx, nil),
		"Run got a nil context":        c.Run(none, ignore),
	}
	for want, err := range refusals {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	c.handling(ignore) // it was not used
	p.untilVerdict(1, "ok")
	c.stop()
	c.endsWell()
}

// lost is a tracer without a context for the handler.
type lost struct{ carry }

func (lost) Extract(context.Context, map[string]string) context.Context { return nil }

func TestATracerWithoutAContextIsHarmless(t *testing.T) {
	p := startProxy(t)
	c := consumerOf(t, p, WithTracer(lost{})).handling(func(ctx context.Context, _ *Message) error {
		return ctx.Err()
	})
	p.put("a")
	p.untilVerdict(1, "ok")
	c.stop()
	c.endsWell()
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
