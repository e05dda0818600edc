package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
)

const (
	ms    = time.Millisecond
	begin = 1000 * time.Second
)

func sessionWith(concurrency, prefetch int) *Session {
	return New(Options{
		Group: "g", ClientID: "c", Version: "v",
		Concurrency: concurrency, Prefetch: prefetch, AckLinger: 20 * ms,
	})
}

// answerWith returns an answer with these messages, each with its own key.
func answerWith(home string, leaseMs int32, numbers ...int64) *consumer.PullResponse {
	answer := &consumer.PullResponse{
		Context: &consumer.Context{GroupId: "g", Topic: "t", Qid: "q#1"},
		LeaseMs: &leaseMs, Home: &home,
	}
	for _, number := range numbers {
		answer.Messages = append(answer.Messages, &consumer.Message{
			LeaseId: ptr(number), Offset: number, Value: []byte{},
			OrderKey: fmt.Append(nil, number),
		})
	}
	return answer
}

func answer(numbers ...int64) *consumer.PullResponse { return answerWith("a:1", 3000, numbers...) }

// runOf returns an answer with consecutive messages of one key.
func runOf(numbers ...int64) *consumer.PullResponse {
	run := answer(numbers...)
	for _, message := range run.Messages {
		message.OrderKey = []byte("k")
	}
	return run
}

func answered(t *testing.T, s *Session, answer *consumer.PullResponse, now time.Duration) {
	t.Helper()
	if _, err := s.PullAnswered(answer, now); err != nil {
		t.Fatal(err)
	}
}

// pulled pulls these messages and takes as many as handlers may have.
func pulled(t *testing.T, s *Session, answer *consumer.PullResponse, now time.Duration) []*Lease {
	t.Helper()
	s.BeginPull(now)
	answered(t, s, answer, now)
	var taken []*Lease
	for lease := s.Take(now); lease != nil; lease = s.Take(now) {
		taken = append(taken, lease)
	}
	return taken
}

func settle(t *testing.T, s *Session, lease *Lease, outcome Outcome, now time.Duration) {
	t.Helper()
	done := 0
	if outcome.Kind == OK {
		done = 1
	}
	if err := s.Settle([]*Lease{lease}, done, outcome, now); err != nil {
		t.Fatal(err)
	}
}

func ok(t *testing.T, s *Session, lease *Lease, now time.Duration) {
	t.Helper()
	settle(t, s, lease, Outcome{}, now)
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func sameIDs(t *testing.T, what string, got []int64, want ...int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// After the pull connection moves to another proxy, old verdicts are sent by settle to their own.
func TestS1VerdictsRideOnlyToTheirOwnProxy(t *testing.T) {
	s := sessionWith(4, 0)
	old := pulled(t, s, answer(1, 2), begin)
	s.BeginPull(begin)
	s.PullFailed(begin, 0)
	fresh := pulled(t, s, answerWith("b:2", 3000, 3), begin+100*ms)
	ok(t, s, old[0], begin+100*ms)
	ok(t, s, fresh[0], begin+100*ms)

	riding := s.BeginPull(begin + 100*ms).Acks
	control := s.BeginControl(s.Homes()["a:1"], begin+101*ms)

	equal(t, "batches that ride", len(riding), 1)
	sameIDs(t, "riding verdicts", riding[0].Acked, 3)
	if control.Settle == nil {
		t.Fatal("no settle for the old proxy")
	}
	sameIDs(t, "settled", control.Settle.Acks[0].Acked, 1)
	equal(t, "the other is lost", old[1].Lost(), false)
}

// Without a pull at the proxy or due, the verdict waits no longer than the linger.
func TestS2AVerdictWaitsForTheLingerWithoutAPull(t *testing.T) {
	s := sessionWith(1, 3)
	first := pulled(t, s, answer(1, 2, 3, 4), begin)[0]
	ok(t, s, first, begin)
	home := s.Homes()["a:1"]

	equal(t, "pull", s.PullAt(), Never)
	equal(t, "settle", s.ControlAt(home), begin+20*ms)
	equal(t, "before that", s.BeginControl(home, begin+19*ms), Control{})
}

// With a pull at the proxy and no message waiting here, the verdict is sent at once.
func TestS2AVerdictIsSentAtOnceIfNoMessageWaits(t *testing.T) {
	s := sessionWith(2, 0)
	both := pulled(t, s, answer(1, 2), begin)
	home := s.Homes()["a:1"]
	ok(t, s, both[0], begin+ms)
	s.BeginPull(begin + ms)
	equal(t, "it rides", s.BeginControl(home, begin+2*ms), Control{})

	ok(t, s, both[1], begin+2*ms)
	equal(t, "settle", s.ControlAt(home), begin+2*ms)
}

// With messages waiting here, the verdict is sent once the pull is overdue.
func TestS2AVerdictWaitsForAPullThatShouldBeAnsweredSoon(t *testing.T) {
	s := sessionWith(1, 4)
	first := pulled(t, s, answer(1, 2), begin)[0]
	s.BeginPull(begin)
	ok(t, s, first, begin+ms)

	equal(t, "settle", s.ControlAt(s.Homes()["a:1"]), begin+3*ms)
}

func TestS2AVerdictInsideARunReleasesNothingAndDoesNotHurry(t *testing.T) {
	s := sessionWith(1, 8)
	s.BeginPull(begin)
	answered(t, s, runOf(1, 2), begin)
	s.BeginPull(begin) // waits for the key's next messages
	home := s.Homes()["a:1"]

	ok(t, s, s.Take(begin), begin+ms)
	equal(t, "inside", s.ControlAt(home), begin+21*ms)
	ok(t, s, s.Take(begin), begin+2*ms)
	equal(t, "at its end", s.ControlAt(home), begin+ms)
}

// Verdicts to a dead proxy are dropped once their leases have expired.
func TestS3AUselessVerdictIsDropped(t *testing.T) {
	s := sessionWith(2, 2)
	ok(t, s, pulled(t, s, answer(1), begin)[0], begin)
	home := s.Homes()["a:1"]
	for _, at := range []time.Duration{begin + 1000*ms, begin + 3000*ms} {
		equal(t, "drained", s.Drained(), false)
		s.BeginControl(home, at)
		s.ControlFailed(home, at, 0)
	}

	equal(t, "settle", s.ControlAt(home), Never)
	equal(t, "drained", s.Drained(), true)
}

// Verdicts of a failed settle are resent, ahead of later ones.
func TestS3AVerdictIsResentUntilItIsConfirmed(t *testing.T) {
	s := sessionWith(2, 0)
	both := pulled(t, s, answer(1, 2), begin)
	home := s.Homes()["a:1"]
	ok(t, s, both[0], begin)
	s.BeginControl(home, begin+20*ms)
	ok(t, s, both[1], begin+21*ms)
	s.ControlFailed(home, begin+30*ms, 0)
	again := s.BeginControl(home, begin+90*ms).Settle
	s.ControlAnswered(home, &consumer.AckAnswer{})

	sameIDs(t, "again", again.Acks[0].Acked, 1, 2)
	equal(t, "drained", s.Drained(), true)
}

// After its deadline a message needs a confirmed extend before it goes to a handler.
func TestS4AMessageWithAnExpiredLeaseNeedsAnExtend(t *testing.T) {
	s := sessionWith(1, 1)
	first := pulled(t, s, answer(1, 2), begin)[0]
	late := begin + 3001*ms
	ok(t, s, first, late)
	if s.Take(late) != nil {
		t.Fatal("delivered after the lease expired")
	}

	home := s.Homes()["a:1"]
	if s.BeginControl(home, late).Extend == nil {
		t.Fatal("no extend was sent")
	}
	s.ControlAnswered(home, &consumer.AckAnswer{})
	lease := s.Take(late)

	if lease == nil {
		t.Fatal("a confirmed message was not delivered")
	}
	equal(t, "deadline", lease.Deadline(), late+3000*ms)
}

func TestS4AnUnconfirmedMessageIsDropped(t *testing.T) {
	s := sessionWith(1, 1)
	first := pulled(t, s, answer(1, 2), begin)[0]
	late := begin + 3001*ms
	ok(t, s, first, late)
	home := s.Homes()["a:1"]
	extend := s.BeginControl(home, late).Extend
	lost := s.ControlAnswered(home, &consumer.AckAnswer{NotHeld: extend.Leases})

	equal(t, "leases lost with handlers", len(lost), 0)
	if s.Take(late) != nil || s.leases.holds(first) {
		t.Error("the message was not dropped")
	}
}

func TestS9AFailedPullIsRepeatedAndItsLeasesRunFromTheFirstSending(t *testing.T) {
	s := sessionWith(1, 2)
	first := s.BeginPull(begin)
	s.PullFailed(begin+10*ms, 0)
	again := s.BeginPull(begin + 500*ms)
	answered(t, s, answer(1), begin+510*ms)

	equal(t, "id", *again.RequestId, *first.RequestId)
	equal(t, "deadline", s.Take(begin+510*ms).Deadline(), begin+3000*ms)
	if *s.BeginPull(begin + 520*ms).RequestId == *first.RequestId {
		t.Error("the pull after it has the same id")
	}
}

func TestS9AFailedPullIsNotRepeatedOnceItsLeasesHaveExpired(t *testing.T) {
	s := sessionWith(2, 2)
	pulled(t, s, answerWith("a:1", 400, 1), begin)
	first := s.BeginPull(begin)
	s.PullFailed(begin, 0)
	again := s.BeginPull(begin + 499*ms) // a pull waits 100 ms, a lease lasts 400 ms
	s.PullFailed(begin+499*ms, 0)
	late := s.BeginPull(begin + 500*ms)

	equal(t, "again", *again.RequestId, *first.RequestId)
	equal(t, "late", *late.RequestId == *first.RequestId, false)
}

func TestS9OnlyABrokenConnectionIsRetriedAtTheSameAddressAndOnce(t *testing.T) {
	equal(t, "broke", TriesElsewhere(true, 1), false)
	equal(t, "broke again", TriesElsewhere(true, 2), true)
	equal(t, "anything else", TriesElsewhere(false, 1), true)
}

// The verdict on the failed message and the release of the rest go together.
func TestS10ARunIsHandledInSequenceAndEndsAtTheFirstFailure(t *testing.T) {
	s := sessionWith(4, 8)
	s.BeginPull(begin)
	answered(t, s, runOf(1, 2, 3, 4), begin)
	first := s.Take(begin)
	equal(t, "a second one", s.Take(begin) == nil, true)
	ok(t, s, first, begin)
	settle(t, s, s.Take(begin), Outcome{Kind: Retry, Reason: "no"}, begin)

	equal(t, "a third one", s.Take(begin) == nil, true)
	batch := s.BeginPull(begin).Acks[0]
	sameIDs(t, "acked", batch.Acked, 1)
	sameIDs(t, "released", batch.Released, 3, 4)
	equal(t, "nacked", len(batch.Nacked) == 1 && batch.Nacked[0].LeaseId == 2, true)
	equal(t, "reason", *batch.Nacked[0].Reason, "no")
}

func TestS10MessagesOfAnotherAnswerDoNotJoinTheRun(t *testing.T) {
	s := sessionWith(4, 8)
	for _, run := range []*consumer.PullResponse{runOf(1, 2), runOf(3)} {
		s.BeginPull(begin)
		answered(t, s, run, begin)
	}
	settle(t, s, s.Take(begin), Outcome{Kind: Defer}, begin)

	equal(t, "next", *s.Take(begin).Message.LeaseId, 3)
}

// A batch counts once for S7, whatever its length, and ends as a run does.
func TestS10ABatchTakesAWholeRun(t *testing.T) {
	s := sessionWith(2, 8)
	for _, run := range []*consumer.PullResponse{runOf(1, 2, 3, 4), runOf(5), answer(6)} {
		s.BeginPull(begin)
		answered(t, s, run, begin)
	}
	batch := s.TakeBatch(begin)
	single := s.TakeBatch(begin)
	equal(t, "batch", len(batch), 4)
	equal(t, "single", len(single) == 1 && *single[0].Message.LeaseId == 6, true)
	equal(t, "open", s.Open(), 2)
	if err := s.Settle(batch, 1, Outcome{Kind: Reject, Reason: "no"}, begin); err != nil {
		t.Fatal(err)
	}

	equal(t, "next", *s.TakeBatch(begin)[0].Message.LeaseId, 5)
	verdicts := s.BeginPull(begin).Acks[0]
	sameIDs(t, "acked", verdicts.Acked, 1)
	sameIDs(t, "released", verdicts.Released, 3, 4)
	equal(t, "nacked", verdicts.Nacked[0].LeaseId, 2)
}
