// Package session decides what a consuming client does next. It is pure: no I/O, no clock, no
// locks, no randomness. The shell around it owns connections, goroutines and the clock. It asks
// PullAt and ControlAt when something is due, sends what BeginPull and BeginControl return, reports
// the answer or the failure, gives what Take returns to handlers, and reports their ends to Settle.
//
// Rules; tests name them:
//
//	S1  A verdict rides on the next pull to the proxy that holds its lease.
//	S2  A verdict waits for the next pull, AckLinger at most. If it may make a message available
//	    to a pull already waiting at the proxy (no further message of its key is held here), it
//	    is sent at once if no message waits here, and otherwise once that pull has been
//	    unanswered for 3 ms. While a settle is in flight, further verdicts accumulate.
//	S3  A verdict is resent until an answer confirms it or its lease must have expired, and never
//	    after that.
//	S4  A lease runs from the moment its pull was sent. After it has expired, its message goes to
//	    a handler only if an extend has confirmed it: a stopped proxy's answer may arrive late.
//	S5  A lease is extended after a third of its length, whether its message is handled or waits.
//	S6  At most one message, or one batch, of an order key is with a handler, even if the proxy
//	    errs.
//	S7  At most Concurrency handlers have messages, and at most Prefetch more messages wait here.
//	S8  After Stop no message goes to a handler: waiting messages and later arrivals are
//	    released.
//	S9  A failed pull is repeated under the same id: if its answer was lost, the proxy sends it
//	    again. Its leases run from the first sending. Once they must have expired, the next pull
//	    has a new id.
//	S10 Messages of one order key that arrive together form a run: when one fails, those behind
//	    it are released with its verdict.
//
// Moments are durations since a fixed one, on a monotonic clock.
package session

import (
	"fmt"
	"math"
	"time"
)

// Never is the moment of events that are not planned.
const Never = time.Duration(math.MaxInt64)

// Limits of a pull's wait. It waits for a quarter of the lease, so that its messages have most of
// their lease left (S4), and for firstLinger before the first lease.
const (
	minLinger   = 20 * time.Millisecond
	firstLinger = time.Second
	maxLinger   = 10 * time.Second
)

const (
	// earlyPause follows an empty answer that came before the pull's wait was over: the proxy
	// is shutting down.
	earlyPause = 50 * time.Millisecond
	// answerDue is the time within which a proxy with messages answers; without messages it
	// lets the pull wait.
	answerDue = 3 * time.Millisecond

	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// Backoff returns the wait after consecutive failures; jitter in [0, 1) spreads clients.
func Backoff(failures int, jitter float64) time.Duration {
	longest := min(firstBackoff<<min(failures-1, 10), maxBackoff)
	return time.Duration(float64(longest) * (0.5 + jitter/2))
}

// TriesElsewhere reports whether the next pull goes to another address. It does not after the first
// break of an established connection: an answer may be waiting there (S9).
func TriesElsewhere(broke bool, failures int) bool { return !broke || failures != 1 }

// IsNews is true for the 1st, 2nd, 4th, 8th … consecutive failure, so that a long outage is logged
// ever less often.
func IsNews(failures int) bool { return failures&(failures-1) == 0 }

// Options configure a session.
type Options struct {
	Group string
	// Topics is nil for all topics of the group.
	Topics   []string
	ClientID string
	Version  string
	// Token authenticates the client; empty: none.
	Token string
	// Concurrency is the maximum number of handlers with messages; Prefetch is the maximum
	// number of messages buffered beyond those.
	Concurrency, Prefetch int
	AckLinger             time.Duration
	// MaxRun is the maximum number of consecutive messages of an order key in one delivery.
	MaxRun int
	// RequestPrefix makes pull ids unique: successive processes may share a client id.
	RequestPrefix string
}

// Session is the state of one consumer. Guard it with one lock.
type Session struct {
	// PullFailures counts consecutive failures of pulls.
	PullFailures int

	options  Options
	homes    map[string]*Home // proxies that hold our leases or await verdicts, by address
	stopping bool
	leases   leases
	capacity int
	lowWater int
	pull     *pull
	failed   *pull // to be repeated
	pulls    int   // ids used so far
	runs     int
	longest  time.Duration // of the most recent leases; 0: no lease yet
	pullHome *Home         // the pull connection's proxy, if known
	retryAt  time.Duration // of pulls
	linger   time.Duration
}

// New makes an empty session.
func New(options Options) *Session {
	return &Session{
		options:  options,
		homes:    map[string]*Home{},
		leases:   newLeases(options.Concurrency),
		capacity: options.Concurrency + options.Prefetch,
		lowWater: max(1, (options.Prefetch+1)/2),
		linger:   firstLinger,
	}
}

func (s *Session) String() string {
	return fmt.Sprintf("<Session %s open=%d ready=%d held=%d pulling=%t homes=%d>", s.options.Group,
		s.leases.open, len(s.leases.ready), len(s.leases.held), s.pull != nil, len(s.homes))
}

// Homes returns the proxies that hold leases of this client or await verdicts, by address. Do not
// modify it.
func (s *Session) Homes() map[string]*Home { return s.homes }

// PullHome returns the proxy that sent messages in the last pull; nil if the next pull may reach
// another one.
func (s *Session) PullHome() *Home { return s.pullHome }

// Stopping reports whether Stop was called.
func (s *Session) Stopping() bool { return s.stopping }

// Takeable returns how many Take calls may succeed now; too high while expired leases wait.
func (s *Session) Takeable() int {
	return min(len(s.leases.ready), s.leases.concurrency-s.leases.open)
}

// Open returns the number of handlers with messages.
func (s *Session) Open() int { return s.leases.open }

// Flushed reports whether nothing is in flight or waiting to be sent.
func (s *Session) Flushed() bool {
	for _, home := range s.homes {
		if home.busy() || !home.verdicts.Empty() {
			return false
		}
	}
	return s.pull == nil
}

// Drained reports whether, in addition, no lease is held.
func (s *Session) Drained() bool { return len(s.leases.held) == 0 && s.Flushed() }

// Take returns the next message for a handler, or nil (S4, S6, S7).
func (s *Session) Take(now time.Duration) *Lease { return s.leases.take(now) }

// TakeBatch returns the next message and the rest of its run, or nil, for one handler. The messages
// are in order of arrival, and no other batch has messages of their key.
func (s *Session) TakeBatch(now time.Duration) []*Lease {
	first := s.leases.take(now)
	if first == nil {
		return nil
	}
	return append([]*Lease{first}, s.leases.takeRest(first, now)...)
}

// Settle reports the end of a handler: of the messages it took, the first done are handled, the
// next one has this outcome, and those behind it were not handled. It fails if no handler has them.
func (s *Session) Settle(taken []*Lease, done int, outcome Outcome, now time.Duration) error {
	failed := done < len(taken)
	var rest []*Lease
	if failed {
		rest = s.leases.dropRest(taken[0])
	}
	if err := s.leases.close(taken); err != nil {
		return err
	}
	hurry := failed || !s.leases.has(taken[0])
	for n, lease := range taken {
		switch {
		case n < done:
			s.judge(lease, Outcome{Kind: OK}, now, hurry)
		case n == done:
			s.judge(lease, outcome, now, hurry)
		default:
			s.judge(lease, Outcome{Kind: Defer}, now, hurry)
		}
	}
	for _, lease := range rest {
		s.judge(lease, Outcome{Kind: Defer}, now, true)
	}
	return nil
}

// Stop ends pulling and releases waiting messages (S8).
func (s *Session) Stop(now time.Duration) {
	s.stopping = true
	for _, lease := range s.leases.dropWaiting() {
		s.judge(lease, Outcome{Kind: Defer}, now, true)
	}
}

func (s *Session) judge(lease *Lease, outcome Outcome, now time.Duration, hurry bool) {
	verdicts := lease.home.verdicts
	verdicts.Add(lease, outcome, now)
	verdicts.hurry = verdicts.hurry || hurry
}
