package session

import (
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
)

// Kind is the kind of an outcome.
type Kind int

// The four outcomes of a message. All other failures mean Retry.
const (
	OK Kind = iota
	Retry
	Reject
	Defer
)

func (k Kind) String() string {
	return [...]string{"ok", "retry", "reject", "defer"}[k]
}

// Outcome is a handler's result for one message.
type Outcome struct {
	Kind Kind
	// AfterMs is the time until the retry; nil: the group's next retry interval.
	AfterMs *int32
	// Reason of a Reject or Retry, shown to operators.
	Reason string
}

// Verdicts holds verdicts on leases of one proxy, grouped as on the wire. Sending them is
// idempotent.
type Verdicts struct {
	since       time.Duration // when the oldest was added
	usefulUntil time.Duration // after this all their leases have expired
	hurry       bool          // they may release a message that a pull waits for
	batches     []*consumer.AckBatch
}

type queue struct{ topic, qid string }

// Empty reports whether there is nothing to send.
func (v *Verdicts) Empty() bool { return len(v.batches) == 0 }

// Len returns the number of verdicts.
func (v *Verdicts) Len() int {
	count := 0
	for _, batch := range v.batches {
		count += len(batch.Acked) + len(batch.Nacked) + len(batch.Released)
	}
	return count
}

// Batches returns the wire form; nil if empty.
func (v *Verdicts) Batches() []*consumer.AckBatch { return v.batches }

// Add adds the verdict on one lease.
func (v *Verdicts) Add(lease *Lease, outcome Outcome, now time.Duration) {
	if v.Empty() {
		v.since = now
	}
	batch := v.batch(lease.context)
	id := *lease.Message.LeaseId
	switch outcome.Kind {
	case OK:
		batch.Acked = append(batch.Acked, id)
	case Defer:
		batch.Released = append(batch.Released, id)
	default:
		batch.Nacked = append(batch.Nacked, nack(id, outcome))
	}
	v.usefulUntil = max(v.usefulUntil, lease.Deadline())
}

// batch returns the batch of a context, which is echoed to the proxy unchanged. There are few: one
// per queue with messages here.
func (v *Verdicts) batch(context *consumer.Context) *consumer.AckBatch {
	for _, each := range v.batches {
		if nameOf(each.Context) == nameOf(context) {
			return each
		}
	}
	batch := &consumer.AckBatch{Context: context}
	v.batches = append(v.batches, batch)
	return batch
}

// absorb adds the verdicts of a failed request.
func (v *Verdicts) absorb(other *Verdicts) {
	if other.Empty() {
		return
	}
	if v.Empty() {
		v.since = other.since
	}
	v.since = min(v.since, other.since)
	for _, batch := range other.batches {
		mine := v.batch(batch.Context)
		mine.Acked = append(batch.Acked, mine.Acked...)
		mine.Nacked = append(batch.Nacked, mine.Nacked...)
		mine.Released = append(batch.Released, mine.Released...)
	}
	v.usefulUntil = max(v.usefulUntil, other.usefulUntil)
	v.hurry = v.hurry || other.hurry
}

func nameOf(context *consumer.Context) queue { return queue{context.Topic, context.Qid} }

func nack(id int64, outcome Outcome) *consumer.Nack {
	wire := &consumer.Nack{LeaseId: id, RetryAfterMs: outcome.AfterMs}
	if outcome.Kind == Reject {
		reject := true
		wire.Reject = &reject
	}
	if outcome.Reason != "" || outcome.Kind == Reject {
		wire.Reason = &outcome.Reason
	}
	return wire
}
