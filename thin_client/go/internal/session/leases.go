package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
)

// Name identifies a live lease: topic, qid with suffix, lease id.
type Name struct {
	Topic, Queue string
	ID           int64
}

// Home is a proxy that holds leases of this client. Only its Session modifies it.
type Home struct {
	// Address is host:port; empty if the proxy did not report it.
	Address string
	// Failures counts consecutive failures of settles and extends.
	Failures int

	verdicts *Verdicts
	extendAt time.Duration
	retryAt  time.Duration
	// In flight: one settle, or one extend sent at askedAt for askedLength.
	settling    *Verdicts
	extending   []*Lease
	askedAt     time.Duration
	askedLength time.Duration
}

func newHome(address string) *Home {
	return &Home{Address: address, verdicts: &Verdicts{}, extendAt: Never}
}

// Settling returns the number of verdicts in the settle in flight.
func (h *Home) Settling() int {
	if h.settling == nil {
		return 0
	}
	return h.settling.Len()
}

func (h *Home) busy() bool { return h.settling != nil || h.extending != nil }

type state int8

const (
	ready   state = iota // waits only for a handler
	chained              // waits behind another message of its key
	open                 // with a handler
	ended
)

// lane identifies messages that are handled one after the other.
type lane struct {
	topic, order string
}

// Lease is one message, and the data needed to settle it.
type Lease struct {
	Message      *consumer.Message
	Topic, Queue string

	context  *consumer.Context
	home     *Home
	lane     lane
	ordered  bool // false: unordered
	run      int  // shared by messages that arrived together and must be handled in sequence
	arrival  int
	length   time.Duration
	deadline atomic.Int64
	lost     atomic.Bool
	state    state
	counted  bool // open and counted against concurrency: false behind the first of a batch
}

// Name identifies the lease among all others.
func (l *Lease) Name() Name { return Name{l.Topic, l.Queue, *l.Message.LeaseId} }

// Deadline returns when the lease expires unless extended. Safe for concurrent use.
func (l *Lease) Deadline() time.Duration { return time.Duration(l.deadline.Load()) }

// SetDeadline is for leases outside a session.
func (l *Lease) SetDeadline(at time.Duration) { l.deadline.Store(int64(at)) }

// Lost reports whether the message may have been delivered to another client. Safe for concurrent
// use.
func (l *Lease) Lost() bool { return l.lost.Load() }

// SetLost is for leases outside a session.
func (l *Lease) SetLost() { l.lost.Store(true) }

// Reference returns the lease's name on the wire.
func (l *Lease) Reference() *consumer.LeaseRef {
	return &consumer.LeaseRef{Context: l.context, LeaseId: *l.Message.LeaseId}
}

// extendAt returns when a third of the lease's length has passed.
func (l *Lease) extendAt() time.Duration { return l.Deadline() - 2*l.length/3 }

// leases holds all leases of a client: open ones with handlers, ready ones, and those chained
// behind another of their key. Operations are O(1) unless noted.
type leases struct {
	concurrency int
	open        int
	arrivals    int
	held        map[Name]*Lease
	ready       []*Lease
	chains      map[lane][]*Lease // leases behind a ready or open one of their lane
}

func newLeases(concurrency int) leases {
	return leases{concurrency: concurrency, held: map[Name]*Lease{}, chains: map[lane][]*Lease{}}
}

func (ls *leases) holds(lease *Lease) bool { return ls.held[lease.Name()] == lease }

// add adds a new lease and reports whether it did: a lease already held is ignored.
func (ls *leases) add(lease *Lease) bool {
	name := lease.Name()
	if _, known := ls.held[name]; known {
		return false
	}
	ls.arrivals++
	lease.arrival = ls.arrivals
	ls.held[name] = lease
	if chain, waits := ls.chains[lease.lane]; lease.ordered && waits {
		lease.state = chained
		ls.chains[lease.lane] = append(chain, lease)
		return true
	}
	if lease.ordered {
		ls.chains[lease.lane] = nil
	}
	lease.state = ready
	ls.ready = append(ls.ready, lease)
	return true
}

// take opens the next ready lease that has not expired; O(expired leases).
func (ls *leases) take(now time.Duration) *Lease {
	if ls.open >= ls.concurrency {
		return nil
	}
	for range len(ls.ready) {
		lease := ls.ready[0]
		ls.ready[0] = nil
		ls.ready = ls.ready[1:]
		if lease.Deadline() > now {
			lease.state, lease.counted = open, true
			ls.open++
			return lease
		}
		ls.ready = append(ls.ready, lease) // a different key each, so order does not matter
	}
	return nil
}

// takeRest opens the leases behind an open one in its run, up to the first that has expired.
func (ls *leases) takeRest(lease *Lease, now time.Duration) []*Lease {
	rest := ls.rest(lease)
	for n, each := range rest {
		if each.Deadline() <= now {
			rest = rest[:n]
			break
		}
		each.state = open
	}
	if len(rest) > 0 {
		// A run is contiguous and at the front, since its first lease is open.
		ls.chains[lease.lane] = ls.chains[lease.lane][len(rest):]
	}
	return rest
}

// rest returns the leases behind an open one in its run.
func (ls *leases) rest(lease *Lease) []*Lease {
	if !lease.ordered {
		return nil
	}
	var rest []*Lease
	for _, each := range ls.chains[lease.lane] {
		if each.run == lease.run {
			rest = append(rest, each)
		}
	}
	return rest
}

// close ends leases that were taken together; the next one of their key becomes ready.
func (ls *leases) close(taken []*Lease) error {
	first := taken[0]
	if first.state != open || !first.counted || !ls.holds(first) {
		return fmt.Errorf("%s/%s at %d: not with a handler",
			first.Topic, first.Queue, first.Message.Offset)
	}
	for _, behind := range taken[1:] {
		behind.state = ended
		delete(ls.held, behind.Name())
	}
	ls.open--
	ls.remove(first)
	return nil
}

// has reports whether a message of the lease's key is held.
func (ls *leases) has(lease *Lease) bool {
	_, found := ls.chains[lease.lane]
	return lease.ordered && found
}

// dropRest removes and returns the leases behind an open one in its run.
func (ls *leases) dropRest(lease *Lease) []*Lease {
	rest := ls.rest(lease)
	for _, each := range rest {
		ls.drop(each)
	}
	return rest
}

// drop removes a lease that is not open; O(n).
func (ls *leases) drop(lease *Lease) {
	if lease.state == ready {
		ls.ready = slices.DeleteFunc(ls.ready, func(each *Lease) bool { return each == lease })
		ls.remove(lease)
		return
	}
	lease.state = ended
	delete(ls.held, lease.Name())
	chain := ls.chains[lease.lane] // only ordered leases are chained
	ls.chains[lease.lane] = slices.DeleteFunc(chain, func(each *Lease) bool { return each == lease })
}

// dropWaiting removes and returns all leases that are not open; O(n).
func (ls *leases) dropWaiting() []*Lease {
	waiting := ls.inOrder(func(lease *Lease) bool { return lease.state != open })
	for _, lease := range waiting {
		lease.state = ended
		delete(ls.held, lease.Name())
	}
	ls.ready = nil
	ls.chains = map[lane][]*Lease{}
	for _, lease := range ls.held {
		if lease.ordered {
			ls.chains[lease.lane] = nil
		}
	}
	return waiting
}

// inOrder returns the matching leases in order of arrival; O(n log n).
func (ls *leases) inOrder(match func(*Lease) bool) []*Lease {
	var found []*Lease
	for _, lease := range ls.held {
		if match(lease) {
			found = append(found, lease)
		}
	}
	slices.SortFunc(found, func(a, b *Lease) int { return cmp.Compare(a.arrival, b.arrival) })
	return found
}

// remove drops the first lease of its key; the next one becomes ready.
func (ls *leases) remove(lease *Lease) {
	lease.state = ended
	delete(ls.held, lease.Name())
	if !lease.ordered {
		return
	}
	chain := ls.chains[lease.lane]
	if len(chain) == 0 {
		delete(ls.chains, lease.lane)
		return
	}
	next := chain[0]
	ls.chains[lease.lane] = chain[1:]
	next.state = ready
	ls.ready = append(ls.ready, next)
}

var (
	errNoContext = errors.New(
		"the answer to a pull has messages, but no topic, qid or leaseMs")
	errNoLease = errors.New("has no body or lease")
)

// reader makes leases from the batches of an answer.
type reader struct {
	home *Home
	sent time.Duration
	// length is the outer answer's, for batches without a length of their own.
	length time.Duration
	runs   *int // counts the runs seen so far
}

// read makes the leases of one queue's batch, or returns what is missing.
func (r reader) read(part *consumer.PullResponse) ([]*Lease, error) {
	if len(part.Messages) == 0 {
		return nil, nil
	}
	length := r.length
	if part.LeaseMs != nil {
		length = time.Duration(*part.LeaseMs) * time.Millisecond
	}
	context := part.Context
	if context == nil || context.Topic == "" || context.Qid == "" || length <= 0 {
		return nil, errNoContext
	}
	found := make([]*Lease, 0, len(part.Messages))
	runs := map[string]int{}
	for _, message := range part.Messages {
		if message == nil || message.LeaseId == nil || message.Value == nil {
			return nil, fmt.Errorf("a message of %s/%s %w", context.Topic, context.Qid, errNoLease)
		}
		*r.runs++
		lease := &Lease{
			Message: message, Topic: context.Topic, Queue: context.Qid,
			context: context, home: r.home, length: length, run: *r.runs,
		}
		lease.SetDeadline(r.sent + length)
		if message.OrderKey != nil {
			order := string(message.OrderKey)
			lease.ordered, lease.lane = true, lane{context.Topic, order}
			if run, known := runs[order]; known {
				lease.run = run
			} else {
				runs[order] = lease.run
			}
		}
		found = append(found, lease)
	}
	return found, nil
}

// ReadAnswer makes the leases of a whole answer to a pull sent at that moment, for callers without
// a session.
func ReadAnswer(answer *consumer.PullResponse, sent time.Duration) ([]*Lease, error) {
	return readParts(answer, newHome(answer.GetHome()), sent, new(int))
}

func readParts(
	answer *consumer.PullResponse, home *Home, sent time.Duration, runs *int,
) ([]*Lease, error) {
	length := time.Duration(answer.GetLeaseMs()) * time.Millisecond
	from := reader{home: home, sent: sent, length: length, runs: runs}
	found, err := from.read(answer)
	for _, part := range answer.More {
		if err != nil {
			return nil, err
		}
		var more []*Lease
		more, err = from.read(part)
		found = append(found, more...)
	}
	return found, err
}
