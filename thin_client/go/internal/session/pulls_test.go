package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
)

// A pull waits a quarter of the lease, so that its messages have most of their time left.
func TestLingerFollowsTheLease(t *testing.T) {
	s := sessionWith(4, 2)
	pulled(t, s, answerWith("a:1", 2000, 1), begin)

	equal(t, "linger", *s.BeginPull(begin).MaxLingerTime, 500)
}

// A proxy that shuts down sends empty answers at once; pulls must not form a tight loop.
func TestAnEarlyEmptyAnswerPausesPulling(t *testing.T) {
	s := sessionWith(2, 2)
	s.BeginPull(begin)
	answered(t, s, &consumer.PullResponse{}, begin+ms)
	early := s.PullAt()
	s.BeginPull(begin + 60*ms)
	answered(t, s, &consumer.PullResponse{}, begin+1060*ms)

	equal(t, "early", early, begin+51*ms)
	equal(t, "after a full wait", s.PullAt() <= begin+1060*ms, true)
}

func TestBackoffGrowsToALimitAndSpreads(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 50, 2: 100, 3: 200, 8: 5000, 100: 5000} {
		equal(t, fmt.Sprint(failures), Backoff(failures, 1), want*ms)
	}
	equal(t, "jitter", Backoff(1, 0), Backoff(1, 1)/2)
}

// The error names the cause; PullFailed then keeps the verdicts.
func TestAMalformedAnswerChangesNothing(t *testing.T) {
	spoil := map[string]func(*consumer.PullResponse){
		"no context": func(answer *consumer.PullResponse) { answer.Context = nil },
		"no topic":   func(answer *consumer.PullResponse) { answer.Context.Topic = "" },
		"no qid":     func(answer *consumer.PullResponse) { answer.Context.Qid = "" },
		"no length":  func(answer *consumer.PullResponse) { answer.LeaseMs = nil },
		"a negative": func(answer *consumer.PullResponse) { answer.LeaseMs = ptr(int32(-5)) },
		"no lease":   func(answer *consumer.PullResponse) { answer.Messages[1].LeaseId = nil },
		"no body":    func(answer *consumer.PullResponse) { answer.Messages[1].Value = nil },
		"in more": func(answer *consumer.PullResponse) {
			answer.More = []*consumer.PullResponse{{Messages: answer.Messages}}
		},
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			s := sessionWith(4, 2)
			ok(t, s, pulled(t, s, answer(9), begin)[0], begin)
			s.BeginPull(begin)
			bad := answer(1, 2)
			spoil(bad)
			if _, err := s.PullAnswered(bad, begin); err == nil {
				t.Fatal("the answer was accepted")
			}
			s.PullFailed(begin, 0)
			control := s.BeginControl(s.Homes()["a:1"], begin+20*ms)

			equal(t, "taken", s.Take(begin) == nil, true)
			sameIDs(t, "acked", control.Settle.Acks[0].Acked, 9)
		})
	}
}

// The same lease in two answers is one message.
func TestARepeatedMessageIsAddedOnce(t *testing.T) {
	s := sessionWith(4, 4)

	equal(t, "first", len(pulled(t, s, answer(1, 2), begin)), 2)
	equal(t, "again", len(pulled(t, s, answer(1, 2), begin)), 0)
}

func TestSettlingTwiceIsAnErrorThatNamesTheMessage(t *testing.T) {
	s := sessionWith(2, 2)
	lease := pulled(t, s, answer(1), begin)[0]
	settle(t, s, lease, Outcome{Kind: Defer}, begin)
	err := s.Settle([]*Lease{lease}, 1, Outcome{}, begin)

	if err == nil || !strings.Contains(err.Error(), "t/q#1 at 1: not with a handler") {
		t.Errorf("got %v", err)
	}
}

func TestStringIsAStatusLine(t *testing.T) {
	s := sessionWith(2, 2)
	pulled(t, s, answer(1, 2, 3), begin)

	equal(t, "line", s.String(), "<Session g open=2 ready=1 held=3 pulling=false homes=1>")
}

func TestALongOutageIsLoggedEverLessOften(t *testing.T) {
	var news []int
	for failures := 1; failures < 100; failures++ {
		if IsNews(failures) {
			news = append(news, failures)
		}
	}
	if !slices.Equal(news, []int{1, 2, 4, 8, 16, 32, 64}) {
		t.Errorf("got %v", news)
	}
}
