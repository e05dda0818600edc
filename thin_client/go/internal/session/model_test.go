package session

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
)

var plays = flag.Int("plays", 300, "number of random plays of the session")

// given is the model's state of one lease.
type given struct {
	id        int64
	key       string // empty: none
	run       int
	home      string
	deadline  time.Duration
	length    time.Duration
	lease     *Lease // with a handler
	outcome   string // empty: none yet
	settledAt time.Duration
	hurry     bool // its verdict may release a message that a pull waits for
	inFlight  bool
	confirmed bool
	lost      bool // its handling and verdict are optional
}

// underWay is a settle or an extend in flight.
type underWay struct {
	control Control
	asked   time.Duration
	leases  []*given
}

// play runs a session beside a naive model, with random pulls, ends, losses and failures.
type play struct {
	t        *testing.T
	r        *rand.Rand
	s        *Session
	now      time.Duration
	given    []*given
	runs     int
	home     string // the proxy of the next pull
	pull     *consumer.PullRequest
	sent     time.Duration
	riding   []*given
	ids      map[string]time.Duration // first sending by pull id
	lastID   string
	failed   bool // the last pull failed
	length   time.Duration
	controls map[*Home]underWay
	retryAt  map[string]time.Duration
	failures map[string]int
}

const modelConcurrency, modelPrefetch = 3, 2

func (p *play) check(holds bool, what string, values ...any) {
	p.t.Helper()
	if !holds {
		p.t.Fatalf("%s; %v", fmt.Sprintf(what, values...), p.s)
	}
}

func (p *play) where(match func(*given) bool) []*given {
	var found []*given
	for _, each := range p.given {
		if match(each) {
			found = append(found, each)
		}
	}
	return found
}

func (p *play) held() []*given {
	return p.where(func(g *given) bool { return g.outcome == "" && !g.lost })
}

func (p *play) open() []*given {
	return p.where(func(g *given) bool { return g.outcome == "" && g.lease != nil })
}

// free returns the leases that wait only for a handler.
func (p *play) free() []*given {
	busy := map[string]bool{}
	for _, each := range p.open() {
		busy[each.key] = each.key != ""
	}
	return p.where(func(g *given) bool {
		return g.outcome == "" && !g.lost && g.lease == nil && !busy[g.key]
	})
}

func (p *play) end(each *given, outcome string) {
	each.outcome, each.settledAt = outcome, p.now
}

// carried returns the leases of a request's verdicts: settled, not in flight, not confirmed.
func (p *play) carried(batches []*consumer.AckBatch, home string) []*given {
	var found []*given
	take := func(batch *consumer.AckBatch, id int64, verdict string) {
		each := p.given[id-1]
		p.check(each.outcome == verdict && !each.inFlight && !each.confirmed,
			"lease %d: %s is sent: %+v", id, verdict, each)
		p.check(home == "" || each.home == home, "S1: %d belongs to %s", id, each.home)
		p.check(batch.Context.Qid == each.home, "lease %d in the context of %v", id, batch.Context)
		each.inFlight = true
		found = append(found, each)
	}
	for _, batch := range batches {
		for _, id := range batch.Acked {
			take(batch, id, "ok")
		}
		for _, nack := range batch.Nacked {
			verdict := "retry"
			if nack.GetReject() {
				verdict = "reject"
			}
			take(batch, nack.LeaseId, verdict)
		}
		for _, id := range batch.Released {
			take(batch, id, "defer")
		}
	}
	return found
}

func returned(leases []*given, confirmed bool) {
	for _, each := range leases {
		each.inFlight, each.confirmed = false, confirmed
	}
}

// ---- invariants ------------------------------------------------------------------------------

// nothingWaitsTooLong checks S2 and S5: while a verdict or a lease waits, a request to its proxy is
// due in time.
func (p *play) nothingWaitsTooLong() {
	for _, address := range []string{"a:1", "b:2"} {
		pending := p.pending(address)
		limit, hurry := Never, slices.ContainsFunc(pending, func(g *given) bool { return g.hurry })
		for _, each := range pending {
			limit = min(limit, p.flushLimit(each.settledAt, hurry))
		}
		for _, each := range p.held() {
			if each.home == address {
				limit = min(limit, each.deadline-2*each.length/3)
			}
		}
		if limit == Never {
			continue
		}
		home := p.s.Homes()[address]
		p.check(home != nil, "no home for %s", address)
		if _, busy := p.controls[home]; busy {
			p.check(p.s.ControlAt(home) == Never, "two requests at a time")
			continue
		}
		at := p.s.ControlAt(home)
		p.check(at <= max(limit, p.retryAt[address]), "due at %v, limit %v", at, limit)
	}
}

func (p *play) flushLimit(settled time.Duration, hurry bool) time.Duration {
	if p.s.Stopping() || (p.pull != nil && hurry && len(p.free()) == 0) {
		return settled
	}
	if p.pull == nil || !hurry {
		return settled + 20*ms
	}
	return min(settled+20*ms, max(settled, p.sent+answerDue))
}

func (p *play) step() {
	steps := []func(){
		p.take, p.take, p.take, p.settle, p.settle, p.stop, p.beginPull, p.beginPull, p.pullAnswered,
		p.pullFails, p.beginControls, p.controlAnswered, p.controlFails,
		func() { p.now += []time.Duration{1, 2, 7, 20, 90, 400, 1200}[p.r.IntN(7)] * ms },
	}
	steps[p.r.IntN(len(steps))]()
	p.nothingWaitsTooLong()
	if len(p.free()) > 0 && len(p.open()) < modelConcurrency {
		p.check(p.s.Takeable() > 0, "free messages cannot be taken")
	}
}

// finish confirms the verdict of every lease that was not lost.
func (p *play) finish() {
	p.s.Stop(p.now)
	for _, each := range p.held() {
		if each.lease == nil {
			p.end(each, "defer")
		}
	}
	for _, each := range p.open() {
		p.check(p.s.Settle([]*Lease{each.lease}, 1, Outcome{}, p.now) == nil, "settle of %d", each.id)
		p.end(each, "ok")
	}
	if p.pull != nil {
		_, err := p.s.PullAnswered(&consumer.PullResponse{}, p.now)
		p.check(err == nil, "empty answer refused: %v", err)
		returned(p.riding, true)
	}
	for range 3 {
		for len(p.controls) > 0 {
			p.controlAnswered()
		}
		p.now += maxBackoff
		p.beginControls()
	}
	p.check(p.s.Drained(), "not drained")
	for _, each := range p.given {
		p.check(each.confirmed || each.lost, "%d was never confirmed: %+v", each.id, each)
	}
}

func TestTheSessionKeepsItsRulesInAnyOrder(t *testing.T) {
	for seed := range *plays {
		p := &play{
			t: t, r: rand.New(rand.NewPCG(uint64(seed), 7)), now: begin, home: "a:1",
			s:   sessionWith(modelConcurrency, modelPrefetch),
			ids: map[string]time.Duration{}, controls: map[*Home]underWay{},
			retryAt: map[string]time.Duration{}, failures: map[string]int{},
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p.t = t
			for range 300 {
				p.step()
			}
			p.finish()
		}) {
			return
		}
	}
}
