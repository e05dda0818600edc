package orderlane

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"orderlane/internal/session"
)

// maxReason is how many characters of an error's text go to the operator.
const maxReason = 200

// RetryError is what Retry and RetryAfter return.
type RetryError struct {
	// After is the time until the retry; negative: the group's next retry interval.
	After time.Duration
}

func (e *RetryError) Error() string {
	if e.After < 0 {
		return "retry"
	}
	return fmt.Sprintf("retry after %v", e.After)
}

// RejectError is what Reject returns.
type RejectError struct{ Reason string }

func (e *RejectError) Error() string {
	if e.Reason == "" {
		return "rejected"
	}
	return e.Reason
}

// DeferError is what Defer returns.
type DeferError struct{}

func (e *DeferError) Error() string { return "deferred" }

// Retry is returned by a handler: give me this message again, after the group's next retry
// interval. Its order key waits meanwhile. Any other error means the same, and is logged.
func Retry() error { return &RetryError{After: -1} }

// RetryAfter is returned by a handler: give me this message again so much later.
func RetryAfter(after time.Duration) error { return &RetryError{After: max(after, 0)} }

// Reject is returned by a handler: no retry will help, the group's failure policy applies at once.
// The reason is for the operator.
func Reject(reason string) error { return &RejectError{Reason: reason} }

// Defer is returned by a handler: given back unhandled, at once and without counting an attempt.
func Defer() error { return &DeferError{} }

// outcomeOf reads what a handler returned; the three above may be wrapped in other errors. Planned
// outcomes are what the application asked for by them, or success.
func outcomeOf(err error) (outcome session.Outcome, planned bool) {
	defer func() {
		if recover() != nil { // a nil that is no nil error: its own methods fail
			text := sendable(fmt.Sprintf("%T: %v", err, err))
			outcome, planned = session.Outcome{Kind: session.Retry, Reason: text}, false
		}
	}()
	var retry *RetryError
	var reject *RejectError
	var postponed *DeferError
	switch {
	case err == nil:
		return session.Outcome{Kind: session.OK}, true
	case errors.As(err, &reject):
		return session.Outcome{Kind: session.Reject, Reason: sendable(reject.Reason)}, true
	case errors.As(err, &postponed):
		return session.Outcome{Kind: session.Defer}, true
	case errors.As(err, &retry):
		outcome = session.Outcome{Kind: session.Retry}
		if retry.After >= 0 {
			ms := int32(min(retry.After.Milliseconds(), math.MaxInt32))
			outcome.AfterMs = &ms
		}
		return outcome, true
	}
	return session.Outcome{Kind: session.Retry, Reason: sendable(err.Error())}, false
}

// sendable makes a text short, and valid: a proxy could not read others.
func sendable(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if utf8.RuneCountInString(text) > maxReason {
		text = string([]rune(text)[:maxReason])
	}
	return text
}
