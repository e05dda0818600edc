package session

import (
	"fmt"
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
)

type pull struct {
	id        string
	firstSent time.Duration // under this id
	sent      time.Duration
	linger    time.Duration
	verdicts  *Verdicts
	home      *Home // home of these verdicts; nil if there are none
}

// PullAt returns when the next pull is due; Never if none is.
func (s *Session) PullAt() time.Duration {
	if s.stopping || s.pull != nil ||
		len(s.leases.ready) >= s.lowWater || len(s.leases.held) >= s.capacity {
		return Never
	}
	return s.retryAt
}

// BeginPull returns the pull to send now, including verdicts (S1). An answer or a failure must
// follow.
func (s *Session) BeginPull(now time.Duration) *consumer.PullRequest {
	home := s.pullHome
	if home == nil {
		home = s.homes[""]
	}
	verdicts := &Verdicts{}
	if home != nil {
		verdicts, home.verdicts = home.verdicts, verdicts
	}
	id, firstSent := s.nextID(now)
	s.pull = &pull{id, firstSent, now, s.linger, verdicts, home}
	request := &consumer.PullRequest{
		GroupId:       s.options.Group,
		Topics:        s.options.Topics,
		MaxBatchSize:  ptr(int32(s.capacity - len(s.leases.held))),
		MaxLingerTime: ptr(int32(s.linger / time.Millisecond)),
		Version:       &s.options.Version,
		ClientId:      &s.options.ClientID,
		ManyQueues:    ptr(true),
		Acks:          verdicts.Batches(),
		RequestId:     &id,
		Token:         s.token(),
	}
	if s.options.MaxRun > 1 {
		request.MaxRun = ptr(int32(s.options.MaxRun))
	}
	return request
}

// nextID returns the id of the pull that begins now, and when that id was first sent (S9).
func (s *Session) nextID(now time.Duration) (string, time.Duration) {
	failed := s.failed
	s.failed = nil
	if failed != nil {
		over := s.longest > 0 && now >= failed.firstSent+failed.linger+s.longest
		if !over {
			return failed.id, failed.firstSent
		}
	}
	s.pulls++
	return fmt.Sprintf("%s%d", s.options.RequestPrefix, s.pulls), now
}

// PullAnswered adds the messages and returns their number. An error means a malformed answer: then
// nothing has changed, and PullFailed must follow.
func (s *Session) PullAnswered(answer *consumer.PullResponse, now time.Duration) (int, error) {
	address := answer.GetHome()
	for _, part := range answer.More {
		if address == "" {
			address = part.GetHome()
		}
	}
	home := s.homes[address]
	if home == nil {
		home = newHome(address)
	}
	arrived, err := readParts(answer, home, s.pull.firstSent, &s.runs)
	if err != nil {
		return 0, err
	}
	pull := s.pull
	s.pull = nil
	s.PullFailures = 0
	if len(arrived) > 0 {
		s.homes[address], s.pullHome = home, home
		shortest, longest := Never, time.Duration(0)
		for _, lease := range arrived {
			shortest, longest = min(shortest, lease.length), max(longest, lease.length)
		}
		s.longest = longest
		s.linger = min(max(shortest/4, minLinger), maxLinger)
	} else if now-pull.sent < pull.linger/2 {
		s.retryAt = now + earlyPause
	}
	for _, lease := range arrived {
		if s.stopping {
			s.judge(lease, Outcome{Kind: Defer}, now, true)
		} else if s.leases.add(lease) {
			home.extendAt = min(home.extendAt, lease.extendAt())
		}
	}
	s.forgetIdleHomes()
	return len(arrived), nil
}

// PullFailed handles a pull that had no answer, a bad one, or no connection; its verdicts are
// resent (S3).
func (s *Session) PullFailed(now time.Duration, jitter float64) {
	if s.pull != nil {
		s.failed, s.pull = s.pull, nil
		if s.failed.home != nil {
			s.failed.home.verdicts.absorb(s.failed.verdicts)
		}
	}
	s.pullHome = nil // the next connection may lead elsewhere
	s.PullFailures++
	s.retryAt = now + Backoff(s.PullFailures, jitter)
}

func (s *Session) token() *string {
	if s.options.Token == "" {
		return nil
	}
	return &s.options.Token
}

func ptr[T any](value T) *T { return &value }
