package session

import (
	"time"

	"orderlane/internal/gen/consumer"
)

// Kind is what became of a message.
type Kind int

// The four outcomes of a message. Retry is also what every other failure means.
const (
	OK Kind = iota
	Retry
	Reject
	Defer
)

func (k Kind) String() string {
	return [...]string{"ok", "retry", "reject", "defer"}[k]
}

// Outcome is a handler's word on one message.
type Outcome struct {
	Kind Kind
	// AfterMs is the time until a retry; nil: the group's next retry interval.
	AfterMs *int32
	// Reason of a Reject or a Retry is for the operator.
	Reason string
}

// Verdicts on leases of one proxy, grouped as on the wire. Sending them twice has the effect of
// once.
type Verdicts struct {
	since       time.Duration // when the oldest came in
	usefulUntil time.Duration // after this no lease among them can be alive
	hurry       bool          // they may release what a pull waits for
	batches     []*consumer.AckBatch
}

type queue struct{ topic, qid string }

// Empty says whether there is nothing to send.
func (v *Verdicts) Empty() bool { return len(v.batches) == 0 }

// Len is the number of verdicts.
func (v *Verdicts) Len() int {
	count := 0
	for _, batch := range v.batches {
		count += len(batch.Acked) + len(batch.Nacked) + len(batch.Released)
	}
	return count
}

// Batches is what goes on the wire; nil if there is nothing.
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

// batch finds the one of a context, which goes back to the proxy as it came. There are few: as many
// as queues have messages here.
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

// absorb takes those of another in, as after a send that failed.
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
