package orderlane

import (
	"context"
	"testing"
)

// odd is an error of an application; the methods of its nil panic.
type odd struct{ cause error }

func (e *odd) Error() string { return e.cause.Error() }
func (e *odd) Unwrap() error { return e.cause }

// A function that returns one of its own kind gives a nil that is no nil error.
func TestAnErrorWhoseMethodsPanicMeansRetry(t *testing.T) {
	p := startProxy(t)
	errors := map[string]error{"odd": (*odd)(nil), "reject": (*RejectError)(nil)}
	c := consumerOf(t, p).handling(func(_ context.Context, m *Message) error {
		return errors[m.Key]
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
