package orderlane

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

// maxReason is the number of characters of an error's text shown to operators.
const maxReason = 200

// RetryError is returned by Retry and RetryAfter.
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

// RejectError is returned by Reject.
type RejectError struct{ Reason string }

func (e *RejectError) Error() string {
	if e.Reason == "" {
		return "rejected"
	}
	return e.Reason
}

// DeferError is returned by Defer.
type DeferError struct{}

func (e *DeferError) Error() string { return "deferred" }

// Retry returns an outcome for handlers: redeliver the message after the group's next retry
// interval. Its order key waits meanwhile. Any other error has the same effect, and is logged.
func Retry() error { return &RetryError{After: -1} }

// RetryAfter returns an outcome for handlers: redeliver the message after this time.
func RetryAfter(after time.Duration) error { return &RetryError{After: max(after, 0)} }

// Reject returns an outcome for handlers: no retry will help, and the group's failure policy
// applies at once. The reason is shown to operators.
func Reject(reason string) error { return &RejectError{Reason: reason} }

// Defer returns an outcome for handlers: release the message unhandled, without counting an
// attempt.
func Defer() error { return &DeferError{} }

// outcomeOf converts a handler's error. The outcomes above may be wrapped in other errors. planned
// is true for success and for the outcomes above.
func outcomeOf(err error) (outcome session.Outcome, planned bool) {
	outcome.Kind = session.Retry // also if a method of err ends without returning
	defer func() {
		if recover() != nil { // a nil pointer in a non-nil error: its methods panic
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

// sendable shortens a text and makes it valid UTF-8, since a proxy cannot read anything else.
func sendable(text string) string {
	text = strings.ToValidUTF8(text, "?")
	count := 0
	for at := range text {
		if count++; count > maxReason {
			return text[:at]
		}
	}
	return text
}
