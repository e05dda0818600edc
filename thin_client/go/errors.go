package orderlane

import (
	"context"
	"errors"
	"fmt"
)

// ErrLeaseLost is the cause (context.Cause) of a handler's cancellation after its lease was lost.
// Stop if you can: the message may be delivered to another client, and the result has no effect.
var ErrLeaseLost = errors.New("lease lost: the message may be delivered to another client")

// ErrDrainTimeout is the cause of a handler's cancellation after the consumer's drain timed out. An
// error that the handler then returns releases the message.
var ErrDrainTimeout = errors.New("drain timed out: the consumer ends before its handlers")

// ErrClosed is returned when a consumer is used twice, or a producer or puller after Close.
var ErrClosed = errors.New("closed or already used: create a new one")

// ConnectionError reports that a connection failed, or ended before the answer. The request may
// have taken effect. A retry may help.
type ConnectionError struct {
	// Broke: an established connection ended suddenly; reconnecting to the same proxy may help.
	Broke bool
	// Err is the cause, if known.
	Err  error
	text string
}

func (e *ConnectionError) Error() string { return withCause(e.text, e.Err) }

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// FaultError reports that the proxy failed, or does not implement the method.
type FaultError struct {
	// Internal faults may be temporary: a retry may help.
	Internal bool
	text     string
}

func (e *FaultError) Error() string { return e.text }

// ProtocolError reports an answer that violates the protocol: another kind of server, or a bug.
type ProtocolError struct {
	// Err is the decoder's error, if any.
	Err  error
	text string
}

func (e *ProtocolError) Error() string { return withCause(e.text, e.Err) }

// Unwrap returns the cause.
func (e *ProtocolError) Unwrap() error { return e.Err }

// RefusedError reports that the proxy refused the request. Code is 400 for an invalid request, 401
// for a missing or unknown token, 403 if the operation is not allowed, 404 for an unknown group or
// topic. From 500 on, a retry may help.
type RefusedError struct {
	Code int
	text string
}

func (e *RefusedError) Error() string { return e.text }

// SendError reports messages that were not stored, or whose outcome is unknown.
type SendError struct {
	// Code is the proxy's code for the first permanent failure, else for the last try as a whole;
	// 0 if no proxy answered.
	Code int
	// OutcomeUnknown: some may have been stored. A message sent again under its id can be
	// recognized as a duplicate.
	OutcomeUnknown bool
	// Failures lists the messages of the call not known to be stored, in order. All others are
	// stored.
	Failures []SendFailure
	// Err is the cause, if the last try had no answer.
	Err  error
	text string
}

// SendFailure describes one message not known to be stored.
type SendFailure struct {
	MessageID string
	// Reason is a readable explanation.
	Reason string
	// Code is the proxy's code for this message; 0 if it gave none.
	Code int
	// OutcomeUnknown: the message may have been stored.
	OutcomeUnknown bool
}

func (e *SendError) Error() string { return e.text }

// Unwrap returns the cause.
func (e *SendError) Unwrap() error { return e.Err }

// Retriable reports whether a retry may help, for errors from Run, Puller calls and hooks.
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

// broke reports whether reconnecting to the same proxy may help.
func broke(err error) bool {
	var connection *ConnectionError
	return errors.As(err, &connection) && connection.Broke
}

// leavesConnection reports whether the connection remains usable.
func leavesConnection(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}

// ended returns the error of a call whose context ended.
func ended(ctx context.Context, text string) error {
	return &ConnectionError{Err: context.Cause(ctx), text: text}
}

func withCause(text string, cause error) string {
	if cause == nil {
		return text
	}
	return fmt.Sprintf("%s: %v", text, cause)
}
