package session

import (
	"testing"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
)

// The proxy caps longer extensions silently, so the client does not ask for them.
func TestS5LeasesOfSeveralLengthsAreExtendedByTheShortest(t *testing.T) {
	s := sessionWith(4, 0)
	pulled(t, s, answerWith("a:1", 9000, 1), begin)
	short := pulled(t, s, answerWith("a:1", 3000, 2), begin)[0]
	pulled(t, s, answerWith("a:1", 6000, 3), begin)
	home := s.Homes()["a:1"]

	equal(t, "due", s.ControlAt(home), begin+1000*ms)
	extend := s.BeginControl(home, begin+1000*ms).Extend
	s.ControlAnswered(home, &consumer.AckAnswer{})

	equal(t, "asked for", extend.Ms, 3000)
	equal(t, "leases", len(extend.Leases), 3)
	equal(t, "deadline", short.Deadline(), begin+4000*ms)
	equal(t, "due again", s.ControlAt(home), begin+2000*ms)
}

func TestS5PrefetchedMessagesAreExtendedToo(t *testing.T) {
	s := sessionWith(1, 2)
	pulled(t, s, answer(1, 2, 3), begin)

	extend := s.BeginControl(s.Homes()["a:1"], begin+1000*ms).Extend

	equal(t, "leases", len(extend.Leases), 3)
}

// A lease is lost if the proxy says so, or is silent past the lease's end.
func TestS5LostLeasesReachTheirHandlers(t *testing.T) {
	s := sessionWith(2, 0)
	both := pulled(t, s, answer(1, 2), begin)
	home := s.Homes()["a:1"]
	extend := s.BeginControl(home, begin+1000*ms).Extend
	refused := s.ControlAnswered(home, &consumer.AckAnswer{NotHeld: extend.Leases[:1]})
	s.BeginControl(home, begin+2000*ms)
	silent := s.ControlFailed(home, begin+4000*ms, 0)

	equal(t, "refused", len(refused) == 1 && refused[0] == both[0] && both[0].Lost(), true)
	equal(t, "silent", len(silent) == 1 && silent[0] == both[1] && both[1].Lost(), true)
	equal(t, "nothing left to extend", s.ControlAt(home), Never)
}

func TestS6OneMessageOfAKeyAtATime(t *testing.T) {
	s := sessionWith(4, 4)
	first := pulled(t, s, runOf(1), begin)[0]
	s.BeginPull(begin)
	answered(t, s, runOf(2), begin) // an error of the proxy
	if s.Take(begin) != nil {
		t.Fatal("its key is with a handler")
	}
	ok(t, s, first, begin)

	equal(t, "next", *s.Take(begin).Message.LeaseId, 2)
}

// A pull asks for the free capacity, and is not due while enough messages wait.
func TestS7HeldMessagesReduceTheCapacity(t *testing.T) {
	s := sessionWith(2, 4)
	equal(t, "first", *s.BeginPull(begin).MaxBatchSize, 6)
	answered(t, s, answer(1, 2, 3, 4, 5, 6), begin)
	first := s.Take(begin)
	s.Take(begin)
	equal(t, "a third one", s.Take(begin) == nil, true)
	equal(t, "pull", s.PullAt(), Never)
	ok(t, s, first, begin)
	for range 3 {
		ok(t, s, s.Take(begin), begin)
	}

	equal(t, "then", *s.BeginPull(begin).MaxBatchSize, 4)
}

// The drain waits for a pull in flight and releases its messages.
func TestS8MessagesThatArriveAfterTheStopAreReleased(t *testing.T) {
	s := sessionWith(2, 2)
	s.BeginPull(begin)
	s.Stop(begin)
	equal(t, "drained", s.Drained(), false)
	answered(t, s, answer(1), begin)
	control := s.BeginControl(s.Homes()["a:1"], begin)

	equal(t, "taken", s.Take(begin) == nil, true)
	sameIDs(t, "released", control.Settle.Acks[0].Released, 1)
}

func TestS8WaitingMessagesAreReleasedInOrderAtTheStop(t *testing.T) {
	s := sessionWith(1, 8)
	s.BeginPull(begin)
	answered(t, s, runOf(1, 2, 3), begin)
	first := s.Take(begin)
	s.Stop(begin)
	ok(t, s, first, begin)
	control := s.BeginControl(s.Homes()["a:1"], begin)

	sameIDs(t, "released", control.Settle.Acks[0].Released, 2, 3)
	sameIDs(t, "acked", control.Settle.Acks[0].Acked, 1)
}
