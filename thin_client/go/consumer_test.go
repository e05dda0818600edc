package orderlane

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// consuming is a consumer in a goroutine; stop ends it and returns the result of Run.
type consuming struct {
	*Consumer
	t    *testing.T
	stop context.CancelFunc
	end  chan error
}

func consumerOf(t *testing.T, p *fakeProxy, options ...ConsumerOption) *consuming {
	t.Helper()
	ctx := context.Background()
	c, err := NewConsumer(ctx, p.address, "g", append([]ConsumerOption{silent}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &consuming{Consumer: c, t: t, end: make(chan error, 1)}
}

func (c *consuming) with(run func(ctx context.Context) error) *consuming {
	ctx, stop := context.WithCancel(context.WithValue(context.Background(), aKey{}, "a value"))
	c.stop = stop
	c.t.Cleanup(stop)
	go func() { c.end <- run(ctx) }()
	return c
}

type aKey struct{}

func (c *consuming) handling(handle func(ctx context.Context, m *Message) error) *consuming {
	return c.with(func(ctx context.Context) error { return c.Run(ctx, handle) })
}

func (c *consuming) ended() error {
	c.t.Helper()
	select {
	case err := <-c.end:
		return err
	case <-time.After(10 * time.Second):
		c.t.Fatalf("the consumer did not end: %v", c.Consumer)
		return nil
	}
}

func (c *consuming) endsWell() {
	c.t.Helper()
	if err := c.ended(); err != nil {
		c.t.Errorf("Run: %v", err)
	}
}

func TestAHandlersResultIsTheOutcome(t *testing.T) {
	p := startProxy(t)
	outcomes := map[string]error{
		"ok": nil, "retry": Retry(), "reject": Reject("schema"), "defer": Defer(),
		"late": fmt.Errorf("the bank: %w", RetryAfter(2*time.Second)), "error": errors.New("no luck"),
	}
	c := consumerOf(t, p).handling(func(_ context.Context, m *Message) error {
		return outcomes[m.Key]
	})
	p.put("ok", "retry", "reject", "defer", "late", "error")
	for n, want := range []string{"ok", "retry", "reject", "defer", "retry after 2000 ms", "retry"} {
		p.untilVerdict(int64(n+1), want)
	}
	c.stop()
	c.endsWell()
	if p.reasons[3] != "schema" || p.reasons[6] != "no luck" {
		t.Errorf("reasons: %v", p.reasons)
	}
}

// Neither may end the handling of other messages, or the process.
func TestAPanicAndAGoexitMeanRetry(t *testing.T) {
	p := startProxy(t)
	c := consumerOf(t, p, WithConcurrency(1)).handling(func(_ context.Context, m *Message) error {
		switch m.Key {
		case "panic":
			panic("so what")
		case "goexit":
			runtime.Goexit()
		}
		return nil
	})
	p.put("panic", "goexit", "ok")
	p.untilVerdict(1, "retry")
	p.untilVerdict(2, "retry")
	p.untilVerdict(3, "ok")
	c.stop()
	c.endsWell()
	if p.reasons[1] != "panic: so what" {
		t.Errorf("reason: %q", p.reasons[1])
	}
}

func TestS6MessagesOfAKeyAreHandledInTheirOrder(t *testing.T) {
	p := startProxy(t)
	var mu sync.Mutex
	var seen []int64
	busy := map[string]bool{}
	c := consumerOf(t, p, WithConcurrency(4), WithMaxRun(8)).handling(
		func(_ context.Context, m *Message) error {
			mu.Lock()
			if busy[m.Key] {
				t.Errorf("two handlers have %s", m.Key)
			}
			busy[m.Key] = true
			if m.Key == "a" {
				seen = append(seen, m.LeaseID)
			}
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			busy[m.Key] = false
			mu.Unlock()
			return nil
		})
	p.put("a", "a", "b", "a", "b", "a")
	p.untilVerdict(6, "ok")
	p.untilVerdict(5, "ok")
	c.stop()
	c.endsWell()
	if fmt.Sprint(seen) != "[1 2 4 6]" {
		t.Errorf("order: %v", seen)
	}
}

func TestAHandlersContextEndsWithItsLease(t *testing.T) {
	p := startProxy(t)
	p.leaseMs = 300
	p.notHeld[1] = true
	lost := make(chan *Message, 1)
	cause := make(chan error, 1)
	hooks := Hooks{LeaseLost: func(m *Message) { lost <- m }}
	c := consumerOf(t, p, WithHooks(hooks)).handling(func(ctx context.Context, m *Message) error {
		if ctx.Value(aKey{}) != "a value" {
			t.Error("the handler's context lacks the values of Run's context")
		}
		<-ctx.Done()
		cause <- context.Cause(ctx)
		if !m.LeaseLost() {
			t.Error("LeaseLost is false")
		}
		return nil
	})
	p.put("a")
	if err := <-cause; !errors.Is(err, ErrLeaseLost) {
		t.Errorf("cause: %v", err)
	}
	if m := <-lost; m.LeaseID != 1 {
		t.Errorf("LeaseLost hook called with %v", m)
	}
	c.stop()
	c.endsWell()
}

func TestBatchesAreAckedUpToTheFailure(t *testing.T) {
	cases := []struct {
		name string
		done int
		err  error
		want string
	}{
		{"all", 3, nil, "ok ok ok"},
		{"none failed but one is left", 2, nil, "ok ok defer"},
		{"rejected", 1, Reject("x"), "ok reject defer"},
		{"failed at once", 0, errors.New("x"), "retry defer defer"},
		{"too many", 9, nil, "ok ok ok"},
		{"all done and failed nevertheless", 3, errors.New("x"), "ok ok retry"},
		{"negative", -1, Retry(), "retry defer defer"},
	}
	for _, each := range cases {
		t.Run(each.name, func(t *testing.T) {
			p := startProxy(t)
			p.put("a", "a", "a")
			var mu sync.Mutex
			ends := map[int64]string{}
			hooks := Hooks{HandleEnd: func(m *Message, outcome string) {
				mu.Lock()
				defer mu.Unlock()
				ends[m.LeaseID] = outcome
			}}
			c := consumerOf(t, p, WithHooks(hooks))
			c.with(func(ctx context.Context) error {
				return c.RunBatches(ctx, func(_ context.Context, b *KeyBatch) (int, error) {
					if len(b.Messages) != 3 || string(b.OrderKey) != "a" {
						t.Errorf("batch: %v of %s", b.Messages, b.OrderKey)
					}
					return each.done, each.err
				})
			})
			for n, want := range strings.Fields(each.want) {
				p.untilVerdict(int64(n+1), want)
			}
			c.stop()
			c.endsWell()
			if got := fmt.Sprint(ends[1], " ", ends[2], " ", ends[3]); got != each.want {
				t.Errorf("hooks were called with %s", got)
			}
			if run := p.pulls[0].GetMaxRun(); run != batchRun {
				t.Errorf("pulls asked for runs of %d", run)
			}
		})
	}
}

func TestMessagesAcksAtTheEndOfTheBody(t *testing.T) {
	p := startProxy(t)
	p.put("a", "b", "c", "d")
	c := consumerOf(t, p, WithConcurrency(1), WithPrefetch(8))
	c.with(func(ctx context.Context) error {
		for m := range c.Messages(ctx) {
			switch m.Key {
			case "b":
				m.Settle(Reject("no"))
				m.Settle(nil) // too late
			case "c":
				return nil // leaves the loop
			}
		}
		return errors.New("the loop ended early")
	})
	c.endsWell()
	for n, want := range []string{"ok", "reject", "defer", "defer"} {
		p.untilVerdict(int64(n+1), want)
	}
	if c.Err() != nil {
		t.Error(c.Err())
	}
}

// With -race: the verdict may come from the goroutine that does the work.
func TestAMessageIsSettledOnceByManyGoroutines(t *testing.T) {
	p := startProxy(t)
	p.put("a")
	var ended atomic.Int32
	c := consumerOf(t, p, WithHooks(Hooks{HandleEnd: func(*Message, string) { ended.Add(1) }}))
	c.with(func(ctx context.Context) error {
		for m := range c.Messages(ctx) {
			var all sync.WaitGroup
			for range 8 {
				all.Add(1)
				go func() {
					defer all.Done()
					m.Settle(Reject("no"))
				}()
			}
			all.Wait()
			return nil
		}
		return errors.New("the loop ended early")
	})
	c.endsWell()
	p.untilVerdict(1, "reject")
	if ended.Load() != 1 {
		t.Errorf("settled %d times", ended.Load())
	}
}

func TestTheLoopOverMessagesEndsWithItsContext(t *testing.T) {
	p := startProxy(t)
	p.put("a")
	c := consumerOf(t, p, WithDrainTimeout(50*time.Millisecond))
	c.with(func(ctx context.Context) error {
		for m := range c.Messages(ctx) {
			c.stop()
			<-m.Context().Done()
			m.Settle(context.Cause(m.Context()))
		}
		return c.Err()
	})
	c.endsWell()
	p.untilVerdict(1, "defer")
}

func TestHooksAreCalledInTheOrderOfEvents(t *testing.T) {
	p := startProxy(t)
	p.script("pull", hangUp)
	var mu sync.Mutex
	var told []string
	tell := func(format string, values ...any) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf(format, values...))
	}
	c := consumerOf(t, p, WithLogger(nil), silent, WithConcurrency(1), WithHooks(Hooks{
		HandleStart: func(m *Message) { tell("start %d", m.LeaseID) },
		HandleEnd:   func(m *Message, outcome string) { tell("end %d %s", m.LeaseID, outcome) },
		Pulled: func(messages int) {
			if messages > 0 {
				tell("pulled %d", messages)
			}
		},
		Settled: func(settled, notHeld int) { tell("settled %d, %d not held", settled, notHeld) },
		Error:   func(err error) { tell("error, again %t", Retriable(err)) },
	}))
	c.handling(func(context.Context, *Message) error {
		c.Stop() // so that the verdict cannot ride on a pull
		return nil
	})
	p.put("a")
	c.endsWell()
	want := "error, again true; pulled 1; start 1; end 1 ok; settled 1, 0 not held"
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(told, "; "); got != want {
		t.Errorf("got %s", got)
	}
}

// carry is a tracer that keeps the header in the context.
type carry struct{}

func (carry) Inject(ctx context.Context, carrier map[string]string) {
	if parent, ok := ctx.Value(carry{}).(string); ok {
		carrier["traceparent"] = parent
	}
}

func (carry) Extract(ctx context.Context, carrier map[string]string) context.Context {
	return context.WithValue(ctx, carry{}, fmt.Sprint(carrier))
}

func TestMessagesCarryTraces(t *testing.T) {
	p := startProxy(t)
	came := make(chan any, 1)
	c := consumerOf(t, p, WithTracer(carry{})).handling(func(ctx context.Context, _ *Message) error {
		came <- ctx.Value(carry{})
		return nil
	})
	p.put("a")
	if got := <-came; got != "map[traceparent:00-1-2-01]" {
		t.Errorf("got %v", got)
	}
	c.stop()
	c.endsWell()
}
