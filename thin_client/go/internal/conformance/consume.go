package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	orderlane "github.com/orderlane/orderlane/thin_client/go"
)

// program is a consumer under test.
type program struct {
	asked   *options
	history *history
	handled atomic.Int64
}

func consume(asked *options) error {
	p := &program{asked: asked, history: openHistory(asked)}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c, err := orderlane.NewConsumer(ctx, asked.Servers, asked.Group, p.options()...)
	if err != nil {
		fatal(err)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		c.StopNow()
	}()
	switch asked.Form {
	case "batches":
		err = c.RunBatches(ctx, p.handleBatch)
	case "iterator":
		for message := range c.Messages(ctx) {
			if p.forgets(message.Message) {
				continue
			}
			message.Settle(p.handle(message.Context(), message.Message))
		}
		err = c.Err()
	default:
		err = c.Run(ctx, p.handle)
	}
	p.history.write("stop", fields{})
	say("stopped", fields{"handled": p.handled.Load(), "error": failure(err)})
	return err
}

func (p *program) options() []orderlane.ConsumerOption {
	var found []orderlane.ConsumerOption
	for _, option := range p.asked.reader() {
		found = append(found, option)
	}
	counts := []struct {
		given  *int
		option func(int) orderlane.ConsumerOption
	}{
		{p.asked.Concurrency, orderlane.WithConcurrency},
		{p.asked.Prefetch, orderlane.WithPrefetch},
		{p.asked.MaxRun, orderlane.WithMaxRun},
	}
	for _, each := range counts {
		if each.given != nil {
			found = append(found, each.option(*each.given))
		}
	}
	if p.asked.AckLingerMs != nil {
		found = append(found, orderlane.WithAckLinger(milliseconds(p.asked.AckLingerMs)))
	}
	if p.asked.DrainTimeoutMs != nil {
		found = append(found, orderlane.WithDrainTimeout(milliseconds(p.asked.DrainTimeoutMs)))
	}
	return append(found, orderlane.WithHooks(p.hooks()))
}

func (p *program) hooks() orderlane.Hooks {
	hooks := orderlane.Hooks{Error: sayError}
	if p.asked.Form != "batches" { // handleBatch reports those
		hooks.HandleStart, hooks.HandleEnd = p.begins, p.ends
	}
	return hooks
}

func (p *program) begins(message *orderlane.Message) {
	p.history.handling("handle_start", message, p.asked, "")
	if !p.asked.Quiet {
		say("start", describe(message))
	}
}

func (p *program) ends(message *orderlane.Message, outcome string) {
	if outcome == "ok" {
		p.handled.Add(1)
	}
	p.history.handling("handle_end", message, p.asked, outcome)
	if !p.asked.Quiet {
		say("end", fields{
			"lease": message.LeaseID, "queue": message.Queue, "offset": message.Offset,
			"outcome": outcome,
		})
	}
}

// orders are a message body's instructions for its handling.
type orders struct {
	WorkMs   *float64 `json:"work_ms"`
	BlockMs  int      `json:"block_ms"`
	Until    string
	Stubborn bool
	Do       string
	AfterMs  *int `json:"after_ms"`
	Reason   string
	Times    *int
}

func (p *program) handle(ctx context.Context, message *orderlane.Message) error {
	if p.asked.Quiet && len(p.asked.WorkMs) == 0 {
		return nil
	}
	var body orders
	if json.Unmarshal(message.Body, &body) != nil {
		body = orders{}
	}
	time.Sleep(time.Duration(body.BlockMs) * time.Millisecond)
	p.work(ctx, message, &body)
	if body.Times != nil && message.Attempt > *body.Times {
		return nil
	}
	switch body.Do {
	case "retry":
		if body.AfterMs != nil {
			return orderlane.RetryAfter(milliseconds(body.AfterMs))
		}
		return orderlane.Retry()
	case "reject":
		return orderlane.Reject(body.Reason)
	case "defer":
		return orderlane.Defer()
	case "raise":
		return errors.New(body.Reason)
	case "unrun": // the only way that compiles to end without an outcome
		runtime.Goexit()
	}
	if errors.Is(context.Cause(ctx), orderlane.ErrDrainTimeout) && !body.Stubborn {
		return ctx.Err() // cut short: not done
	}
	return nil
}

// forgets reports whether to continue the loop without settling the message.
func (p *program) forgets(message *orderlane.Message) bool {
	var body orders
	return json.Unmarshal(message.Body, &body) == nil && body.Do == "forget"
}

// work waits for the body's time, or until the handler is cancelled.
func (p *program) work(ctx context.Context, message *orderlane.Message, body *orders) {
	var length time.Duration
	if body.WorkMs != nil {
		length = time.Duration(*body.WorkMs * float64(time.Millisecond))
	} else if len(p.asked.WorkMs) == 2 {
		least, most := p.asked.WorkMs[0], p.asked.WorkMs[1]
		length = time.Duration((least + rand.Float64()*(most-least)) * float64(time.Millisecond))
	}
	if body.Stubborn {
		told := context.AfterFunc(ctx, func() { p.tellLost(ctx, message) })
		time.Sleep(length)
		told()
		return
	}
	var over <-chan time.Time
	switch {
	case body.Until == "lost":
	case length > 0:
		timer := time.NewTimer(length)
		defer timer.Stop()
		over = timer.C
	default:
		return
	}
	select {
	case <-ctx.Done():
		p.tellLost(ctx, message)
	case <-over:
	}
}

func (p *program) tellLost(ctx context.Context, message *orderlane.Message) {
	if errors.Is(context.Cause(ctx), orderlane.ErrLeaseLost) && !p.asked.Quiet {
		say("lost", fields{"lease": message.LeaseID, "queue": message.Queue})
	}
}

// handleBatch handles the messages in order, and stops at the first that fails.
func (p *program) handleBatch(ctx context.Context, batch *orderlane.KeyBatch) (int, error) {
	for n, message := range batch.Messages {
		p.begins(message)
		err := p.handle(ctx, message)
		if errors.Is(context.Cause(ctx), orderlane.ErrLeaseLost) {
			err = orderlane.Defer() // the rest of the batch is lost too
		}
		p.ends(message, outcomeName(err))
		if err != nil {
			return n, err
		}
	}
	return len(batch.Messages), nil
}

func outcomeName(err error) string {
	var reject *orderlane.RejectError
	var postponed *orderlane.DeferError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &reject):
		return "reject"
	case errors.As(err, &postponed), errors.Is(err, context.Canceled): // at the end of the drain
		return "defer"
	}
	return "retry"
}
