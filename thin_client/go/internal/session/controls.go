package session

import (
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
)

// Control is a settle or an extend; both are nil if nothing is due.
type Control struct {
	Settle *consumer.AckRequest
	Extend *consumer.ExtendRequest
}

// ControlAt returns when a settle or extend is due at home (S2, S5); Never if none is.
func (s *Session) ControlAt(home *Home) time.Duration {
	if home.busy() {
		return Never
	}
	due := min(home.extendAt, s.flushAt(home))
	if due == Never {
		return Never
	}
	return max(due, home.retryAt)
}

// BeginControl returns the request to send to home now, if any. An answer or a failure must follow.
func (s *Session) BeginControl(home *Home, now time.Duration) Control {
	if home.extendAt <= now {
		s.planExtends(home) // the lease that set the time may be gone
		if home.extendAt <= now {
			return Control{Extend: s.beginExtend(home, now)}
		}
	}
	if s.flushAt(home) > now {
		return Control{}
	}
	home.settling, home.verdicts = home.verdicts, &Verdicts{}
	return Control{Settle: &consumer.AckRequest{
		GroupId:  s.options.Group,
		Acks:     home.settling.Batches(),
		ClientId: &s.options.ClientID,
		Token:    s.token(),
	}}
}

// ControlAnswered handles the answer to a settle or extend. It returns the lost leases whose
// messages are with handlers.
func (s *Session) ControlAnswered(home *Home, answer *consumer.AckAnswer) []*Lease {
	extended := home.extending
	home.extending, home.settling = nil, nil
	home.Failures, home.retryAt = 0, 0
	var lost []*Lease
	if extended != nil {
		refused := map[Name]bool{}
		for _, reference := range answer.NotHeld {
			context := reference.GetContext()
			refused[Name{context.GetTopic(), context.GetQid(), reference.LeaseId}] = true
		}
		for _, lease := range extended {
			if refused[lease.Name()] {
				lost = s.lose(lease, lost)
			} else {
				lease.length = home.askedLength
				lease.SetDeadline(home.askedAt + home.askedLength)
			}
		}
		s.planExtends(home)
	}
	s.forgetIdleHomes()
	return lost
}

// ControlFailed handles a settle or extend without an answer: everything is resent (S3). It returns
// the expired leases whose messages are with handlers.
func (s *Session) ControlFailed(home *Home, now time.Duration, jitter float64) []*Lease {
	if home.settling != nil {
		home.verdicts.absorb(home.settling)
	}
	home.settling, home.extending = nil, nil
	home.Failures++
	home.retryAt = now + Backoff(home.Failures, jitter)
	if home.verdicts.usefulUntil <= now {
		home.verdicts = &Verdicts{}
	}
	var lost []*Lease
	for _, lease := range s.leasesOf(home) {
		if lease.Deadline() <= now {
			lost = s.lose(lease, lost)
		}
	}
	s.planExtends(home)
	s.forgetIdleHomes()
	return lost
}

func (s *Session) flushAt(home *Home) time.Duration {
	verdicts := home.verdicts
	if verdicts.Empty() {
		return Never
	}
	hurry := verdicts.hurry && s.pull != nil
	if s.stopping || (hurry && len(s.leases.ready) == 0) {
		return verdicts.since
	}
	last := verdicts.since + s.options.AckLinger
	if !hurry {
		return last
	}
	return min(last, max(verdicts.since, s.pull.sent+answerDue))
}

func (s *Session) beginExtend(home *Home, now time.Duration) *consumer.ExtendRequest {
	home.extending = s.leasesOf(home)
	home.askedAt = now
	// With several lengths, use the shortest: the proxy caps a longer one silently.
	home.askedLength = Never
	references := make([]*consumer.LeaseRef, len(home.extending))
	for n, lease := range home.extending {
		home.askedLength = min(home.askedLength, lease.length)
		references[n] = lease.Reference()
	}
	return &consumer.ExtendRequest{
		GroupId:  s.options.Group,
		Leases:   references,
		Ms:       int32(home.askedLength / time.Millisecond),
		ClientId: &s.options.ClientID,
		Token:    s.token(),
	}
}

// leasesOf returns the leases to extend at home; O(n).
func (s *Session) leasesOf(home *Home) []*Lease {
	return s.leases.inOrder(func(lease *Lease) bool { return lease.home == home && !lease.Lost() })
}

func (s *Session) planExtends(home *Home) {
	home.extendAt = Never
	for _, lease := range s.leases.held {
		if lease.home == home && !lease.Lost() {
			home.extendAt = min(home.extendAt, lease.extendAt())
		}
	}
}

// lose appends the lease to lost if its message is with a handler, and otherwise drops it.
func (s *Session) lose(lease *Lease, lost []*Lease) []*Lease {
	switch {
	case !s.leases.holds(lease):
		return lost
	case lease.state == open:
		lease.SetLost()
		return append(lost, lease)
	}
	s.leases.drop(lease)
	return lost
}

func (s *Session) forgetIdleHomes() {
	if len(s.homes) < 2 {
		return
	}
	needed := map[*Home]bool{s.pullHome: true}
	if s.pull != nil {
		needed[s.pull.home] = true
	}
	for _, lease := range s.leases.held {
		needed[lease.home] = true
	}
	for address, home := range s.homes {
		if !needed[home] && !home.busy() && home.verdicts.Empty() {
			delete(s.homes, address)
		}
	}
}
