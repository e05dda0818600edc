package orderlane

import (
	"context"
	"errors"
	"fmt"
)

// ErrLeaseLost is the cause (context.Cause) of a handler's context that was cancelled because
// someone else may get the message: stop if you can, what you return has no effect.
var ErrLeaseLost = errors.New("the lease of this message is lost: someone else may get it")

// ErrDrainTimeout is the cause of a handler's context that was cancelled because the consumer ends
// and does not wait any longer. An error that the handler then returns gives the message back.
var ErrDrainTimeout = errors.New("the consumer ends, and the time for handlers to finish is up")

// ErrClosed says that a consumer was used again, or a producer or puller after Close.
var ErrClosed = errors.New("it was closed, or used before: make another one")

// ConnectionError says that a connection could not be made, or ended before the answer came. The
// request may have had its effect nevertheless. Trying again may help.
type ConnectionError struct {
	// Broke: the connection stood, and ended suddenly; another one to the same proxy may do.
	Broke bool
	// Err is why, where that is known.
	Err  error
	text string
}

func (e *ConnectionError) Error() string { return withCause(e.text, e.Err) }

// Unwrap gives the reason.
func (e *ConnectionError) Unwrap() error { return e.Err }

// FaultError says that the proxy answered that it failed, or does not know the method.
type FaultError struct {
	// Internal faults may pass: trying again may help.
	Internal bool
	text     string
}

func (e *FaultError) Error() string { return e.text }

// ProtocolError says that an answer is not what the contract says: another kind of server, or a
// bug.
type ProtocolError struct {
	// Err is what the reader of the answer said, if anything.
	Err  error
	text string
}

func (e *ProtocolError) Error() string { return withCause(e.text, e.Err) }

// Unwrap gives the reason.
func (e *ProtocolError) Unwrap() error { return e.Err }

// RefusedError says that the proxy refused the request. Code is 400 for a wrong request, 401 for a
// token that is missing or unknown, 404 for a group or topic that there is not; from 500 on trying
// again may help.
type RefusedError struct {
	Code int
	text string
}

func (e *RefusedError) Error() string { return e.text }

// SendError says that messages were not stored, or that nobody knows whether they were.
type SendError struct {
	// Code is the proxy's for the first failure that no retry can help, else for the last try as a
	// whole; 0 if no proxy answered.
	Code int
	// OutcomeUnknown: some may be stored nevertheless. Sent again under its id, a message can be
	// told to be the same.
	OutcomeUnknown bool
	// Failures are the messages of the call that are not known to be stored, in their order. All
	// others are.
	Failures []SendFailure
	// Err is why, where the last try had no answer.
	Err  error
	text string
}

// SendFailure is one message that is not known to be stored.
type SendFailure struct {
	MessageID string
	// Reason is for people.
	Reason string
	// Code is the proxy's for this message; 0 if it said nothing of it.
	Code int
	// OutcomeUnknown: it may be stored nevertheless.
	OutcomeUnknown bool
}

func (e *SendError) Error() string { return e.text }

// Unwrap gives the reason.
func (e *SendError) Unwrap() error { return e.Err }

// Retriable says whether trying again may help: for errors that Run and the calls of a Puller
// return, and those that hooks are told of.
func Retriable(err error) bool {
	var connection *ConnectionError
	var fault *FaultError
	var refused *RefusedError
	switch {
	case errors.As(err, &connection):
		return true
	case errors.As(err, &fault):
		return fault.Internal
	case errors.As(err, &refused):
		return refused.Code >= 500
	}
	return false
}

// broke says whether another connection to the same proxy may do.
func broke(err error) bool {
	var connection *ConnectionError
	return errors.As(err, &connection) && connection.Broke
}

// leavesConnection says whether the connection can still be used.
func leavesConnection(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}

// ended is the error of a call whose context ended.
func ended(ctx context.Context, text string) error {
	return &ConnectionError{Err: context.Cause(ctx), text: text}
}

func withCause(text string, cause error) string {
	if cause == nil {
		return text
	}
	return fmt.Sprintf("%s: %v", text, cause)
}
