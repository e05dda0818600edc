// Package session decides what a consuming client does next. It is pure: no I/O, no clock, no
// locks, no randomness. The shell around it owns connections, goroutines and the clock. It asks
// PullAt and ControlAt when something is due, sends what BeginPull and BeginControl return, reports
// the answer or the failure, gives what Take returns to handlers, and reports their ends to Settle.
//
// Rules; tests name them:
//
//	S1  A verdict rides on the next pull to the proxy that holds its lease.
//	S2  A verdict waits for the next pull, AckLinger at most. But what it releases may be just
//	    what a pull at the proxy waits for: it is sent at once if no message waits here
//	    meanwhile, and otherwise once that pull has not been answered for 3 ms. (One whose key
//	    goes on here releases nothing.) While some are under way others gather.
//	S3  A verdict is sent again until an answer confirms it or its lease cannot be alive, and
//	    never after that.
//	S4  A lease runs from the moment its pull was sent. A message whose lease has run out goes to
//	    a handler only after an extend has confirmed it: a stopped proxy's answer may come late.
//	S5  With a third of its length gone a lease is extended, whether its message is handled or
//	    waits.
//	S6  Of one order key at most one message, or one batch, is with a handler, even if the proxy
//	    erred.
//	S7  At most Concurrency handlers have messages, and Prefetch more messages wait here.
//	S8  After Stop no message goes to a handler: what waits, and what still arrives, is given
//	    back.
//	S9  A pull that failed is repeated under the same id: its answer may be lost, and its proxy
//	    gives it again. Its leases run from the first sending. Once they must be over a pull has
//	    a new id.
//	S10 What came together of one order key is a run: at the first of it that does not end well,
//	    those behind it are given back with the verdict.
//
// Moments are durations since some fixed one, on a clock that never goes back.
package session

import (
	"fmt"
	"math"
	"time"
)

// Never is the moment of what is not planned.
const Never = time.Duration(math.MaxInt64)

// How long a pull may wait: a quarter of the lease, so that what it brings has most of its lease
// left (S4); and before any lease was seen.
const (
	minLinger   = 20 * time.Millisecond
	firstLinger = time.Second
	maxLinger   = 10 * time.Second
)

const (
	// earlyPause follows an answer that is empty although its pull could have waited: a proxy that
	// shuts down.
	earlyPause = 50 * time.Millisecond
	// answerDue is within what a proxy that has messages answers; one that has none lets a pull
	// wait.
	answerDue = 3 * time.Millisecond

	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// Backoff is how long to wait after so many failures in a row; jitter in [0, 1) spreads clients.
func Backoff(failures int, jitter float64) time.Duration {
	longest := min(firstBackoff<<min(failures-1, 10), maxBackoff)
	return time.Duration(float64(longest) * (0.5 + jitter/2))
}

// TriesElsewhere says whether the next pull goes to another address: not where an answer may be
// waiting (S9). A connection that broke stood before, and ended suddenly.
func TriesElsewhere(broke bool, failures int) bool { return !broke || failures != 1 }

// IsNews is true for the 1st, 2nd, 4th, 8th … failure in a row: a long outage is logged less and
// less.
func IsNews(failures int) bool { return failures&(failures-1) == 0 }

// Options are what a session is told once.
type Options struct {
	Group string
	// Topics is nil for any topic of the group.
	Topics   []string
	ClientID string
	Version  string
	// Token says who is asking; empty: nobody.
	Token string
	// Concurrency is how many handlers have messages at most; Prefetch, how many messages wait here
	// beside them.
	Concurrency, Prefetch int
	AckLinger             time.Duration
	// MaxRun is how many consecutive messages of an order key may come together.
	MaxRun int
	// RequestPrefix makes the ids of pulls unique: processes may share a client id, one after the
	// other.
	RequestPrefix string
}

// Session is one consumer's state. One lock has to guard it.
type Session struct {
	// PullFailures counts those in a row.
	PullFailures int

	options  Options
	homes    map[string]*Home // that hold leases of ours or wait for verdicts, by address
	stopping bool
	leases   leases
	capacity int
	lowWater int
	pull     *pull
	failed   *pull // to be repeated
	pulls    int   // ids given so far
	runs     int
	longest  time.Duration // of the leases that came last; 0: none came
	pullHome *Home         // where the connection for pulls leads, if known
	retryAt  time.Duration // of pulls
	linger   time.Duration
}

// New makes a session that has nothing yet.
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

// Homes are the proxies that hold leases of ours or wait for verdicts, by address. Not to be
// written.
func (s *Session) Homes() map[string]*Home { return s.homes }

// PullHome is where the last pull that brought messages found them; nil if the next one may lead
// elsewhere.
func (s *Session) PullHome() *Home { return s.pullHome }

// Stopping says whether Stop was called.
func (s *Session) Stopping() bool { return s.stopping }

// Takeable is how many times Take may give something now; too high while leases that ran out wait.
func (s *Session) Takeable() int {
	return min(len(s.leases.ready), s.leases.concurrency-s.leases.open)
}

// Open is the number of handlers that have messages.
func (s *Session) Open() int { return s.leases.open }

// Flushed says whether nothing is under way or waits to be sent.
func (s *Session) Flushed() bool {
	for _, home := range s.homes {
		if home.busy() || !home.verdicts.Empty() {
			return false
		}
	}
	return s.pull == nil
}

// Drained says whether nothing is held either.
func (s *Session) Drained() bool { return len(s.leases.held) == 0 && s.Flushed() }

// Take gives the next message to a handler, or nil (S4, S6, S7).
func (s *Session) Take(now time.Duration) *Lease { return s.leases.take(now) }

// TakeBatch gives the next message, and those of its run with it, to a handler; or nil. Each of
// them came later than the one before, and the messages of no other batch are of the same key.
func (s *Session) TakeBatch(now time.Duration) []*Lease {
	first := s.leases.take(now)
	if first == nil {
		return nil
	}
	return append([]*Lease{first}, s.leases.takeRest(first, now)...)
}

// Settle says that a handler is done with what it took: the first done messages are handled, the
// next one ended so, and those behind it were not begun. Fails if a handler does not have them.
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

// Stop pulls no more, and gives back what waits (S8).
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
