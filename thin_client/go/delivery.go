package orderlane

import (
	"fmt"
	"slices"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/producer"
	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

const (
	// longestTry is the limit for one try; after that the next one begins.
	longestTry = 3 * time.Second
	// answerRoom is added to it for the proxy's own answer.
	answerRoom = 500 * time.Millisecond
)

// Codes of a Result.
const (
	codeStored  = 0
	codeUnknown = 10
	codeIllegal = 11
	codeTimeout = 12
	codeTooFast = 15
	codeEnding  = 20
	codeBehind  = 70
	codeRefused = 71
)

// isTriedAgain reports whether to send the same message again under the same id.
func isTriedAgain(code int) bool {
	switch code {
	case codeUnknown, codeTimeout, codeTooFast, codeEnding, codeBehind:
		return true
	}
	return false
}

// isRefusedWhole reports whether nothing of a batch was stored if the code comes without results of
// its messages.
func isRefusedWhole(code int) bool {
	return code == codeIllegal || code == codeTooFast || code == codeRefused
}

// mayBeStored reports whether the message may or may not have been stored.
func mayBeStored(code int) bool { return code == codeUnknown || code == codeTimeout }

// parcel is one message of a delivery and its known state.
type parcel struct {
	message  *producer.Message
	id       string
	stored   bool
	doubtful bool // may be stored
	code     int
	reason   string
}

func (p *parcel) failure() SendFailure {
	return SendFailure{
		MessageID: p.id, Reason: p.reason, Code: p.code, OutcomeUnknown: p.doubtful,
	}
}

// sendLane is the scope of send order: a sharding key's hash, or a queue.
type sendLane struct {
	topic  string
	hash   int64
	queue  int32
	hashed bool
}

func (p *parcel) lane() (sendLane, bool) {
	switch {
	case p.message.PartitionId >= 0:
		return sendLane{topic: p.message.Topic, queue: p.message.PartitionId}, true
	case p.message.HashId != nil:
		return sendLane{topic: p.message.Topic, hash: *p.message.HashId, hashed: true}, true
	}
	return sendLane{}, false
}

// delivery is the messages of one request, tried until its deadline. Messages known to be stored
// are not sent again.
type delivery struct {
	parcels  []*parcel
	deadline time.Duration
	delay    time.Time // delivery time of the only message; zero: at once
	failures int
}

// sendCall is one try of a delivery.
type sendCall struct {
	method    string
	arguments thrift.TStruct
	answer    result
	outcome   func() *producer.Result_ // of the answer
	timeout   time.Duration
}

// call builds the next try.
func (d *delivery) call(now time.Duration) sendCall {
	limit := max(min(d.deadline-now, longestTry), time.Millisecond)
	call := sendCall{timeout: limit + answerRoom}
	open := d.open()
	switch {
	case !d.delay.IsZero():
		answer := &producer.ProducerServiceSendDelaySyncResult{}
		call.method, call.answer = "sendDelaySync", answer
		call.arguments = &producer.ProducerServiceSendDelaySyncArgs{
			DelayMessage: delayed(open[0].message, d.delay), Timeout: limit.Milliseconds(),
		}
		call.outcome = func() *producer.Result_ {
			return &producer.Result_{Code: answer.Success.Code, Msg: answer.Success.Msg}
		}
	case len(open) == 1:
		answer := &producer.ProducerServiceSendSyncResult{}
		call.method, call.answer = "sendSync", answer
		call.arguments = &producer.ProducerServiceSendSyncArgs{
			Message: open[0].message, Timeout: limit.Milliseconds(),
		}
		call.outcome = func() *producer.Result_ { return answer.Success }
	default:
		messages := make([]*producer.Message, len(open))
		for n, parcel := range open {
			messages[n] = parcel.message
		}
		answer := &producer.ProducerServiceSendBatchSyncResult{}
		call.method, call.answer = "sendBatchSync", answer
		call.arguments = &producer.ProducerServiceSendBatchSyncArgs{Messages: messages}
		call.outcome = func() *producer.Result_ { return answer.Success }
	}
	return call
}

// verdict on a try: all stored, a pause before the next try, or an error.
type verdict struct {
	stored bool
	pause  time.Duration
	err    *SendError
}

// answered handles the proxy's answer.
func (d *delivery) answered(result *producer.Result_, now time.Duration, jitter float64) verdict {
	sent := d.open()
	code, whole := int(result.Code), result.Msg
	if whole == "" {
		whole = "no reason given"
	}
	if code == codeStored {
		for _, parcel := range sent {
			parcel.stored = true
		}
		return verdict{stored: true}
	}
	d.read(sent, result, whole)
	open := d.open()
	if len(open) == 0 {
		return verdict{stored: true}
	}
	again := isTriedAgain(code)
	for _, parcel := range open {
		if !isTriedAgain(parcel.code) {
			again, code = false, parcel.code
			break
		}
	}
	return d.next(code, again, nil, now, jitter)
}

// read applies the answer to each message.
func (d *delivery) read(sent []*parcel, result *producer.Result_, whole string) {
	reason := whole
	for n, parcel := range sent {
		if len(result.Messages) == len(sent) {
			each := result.Messages[n]
			parcel.code = int(each.Code)
			if each.GetMsg() != "" { // absent: same as the previous one
				reason = each.GetMsg()
			}
		} else if parcel.code = int(result.Code); len(sent) > 1 && !isRefusedWhole(parcel.code) {
			parcel.code = codeUnknown // some may be stored
		}
		parcel.stored = parcel.code == codeStored
		parcel.doubtful = parcel.doubtful || mayBeStored(parcel.code)
		parcel.reason = reason
	}
}

// failed handles a try without an answer; sent: the request may have arrived.
func (d *delivery) failed(err error, sent bool, now time.Duration, jitter float64) verdict {
	for _, parcel := range d.open() {
		parcel.doubtful = parcel.doubtful || sent
		parcel.code, parcel.reason = 0, err.Error()
	}
	return d.next(0, Retriable(err), err, now, jitter)
}

func (d *delivery) next(
	code int, again bool, cause error, now time.Duration, jitter float64,
) verdict {
	d.failures++
	pause := session.Backoff(d.failures, jitter)
	if again && now+pause < d.deadline {
		return verdict{pause: pause}
	}
	return verdict{err: sendError(d.open(), code, cause)}
}

// notSent returns the error for a delivery that was never tried.
func (d *delivery) notSent(reason string) *SendError {
	for _, parcel := range d.open() {
		parcel.code, parcel.reason = 0, reason
	}
	return sendError(d.open(), 0, nil)
}

func (d *delivery) open() []*parcel {
	var open []*parcel
	for _, parcel := range d.parcels {
		if !parcel.stored {
			open = append(open, parcel)
		}
	}
	return open
}

// lanes returns the lanes of messages not known to be stored.
func (d *delivery) lanes() []sendLane {
	var lanes []sendLane
	for _, parcel := range d.open() {
		if lane, has := parcel.lane(); has && !slices.Contains(lanes, lane) {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

func sendError(failed []*parcel, code int, cause error) *SendError {
	e := &SendError{Code: code, Err: cause}
	for _, parcel := range failed {
		e.OutcomeUnknown = e.OutcomeUnknown || parcel.doubtful
		e.Failures = append(e.Failures, parcel.failure())
	}
	first, others, end := failed[0], "", "not stored"
	if len(failed) > 1 {
		others = fmt.Sprintf(" and %d others", len(failed)-1)
	}
	if e.OutcomeUnknown {
		end = "may have been stored"
	}
	e.text = fmt.Sprintf("sending to %s failed: %s (message %s%s: %s)",
		first.message.Topic, first.reason, first.id, others, end)
	return e
}
