package session

import (
	"slices"
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
)

// ---- possible events -------------------------------------------------------------------------

func (p *play) take() {
	lease := p.s.Take(p.now)
	if lease == nil {
		return
	}
	each := p.given[*lease.Message.LeaseId-1]
	p.check(each.lease == nil && !each.lost, "%d was delivered twice: %+v", each.id, each)
	p.check(each.deadline > p.now, "S4: %d has expired", each.id)
	for _, other := range p.open() {
		p.check(each.key == "" || other.key != each.key, "S6: two of %s", each.key)
	}
	p.check(!p.s.Stopping(), "S8: delivered after the stop")
	each.lease = lease
	p.check(len(p.open()) <= modelConcurrency, "S7: too many handlers")
}

func (p *play) settle() {
	open := p.open()
	if len(open) == 0 {
		return
	}
	each := open[p.r.IntN(len(open))]
	outcome := Outcome{Kind: Kind(p.r.IntN(4))}
	done := 0
	if outcome.Kind == OK {
		done = 1
	}
	p.check(p.s.Settle([]*Lease{each.lease}, done, outcome, p.now) == nil, "settle of %d", each.id)
	p.end(each, outcome.Kind.String())
	each.hurry = true
	for _, other := range p.held() {
		switch {
		case each.key == "" || other.key != each.key:
		case outcome.Kind == OK:
			each.hurry = false
		case other.run == each.run:
			p.end(other, "defer") // S10
			other.hurry = true
		}
	}
}

func (p *play) stop() {
	if len(p.given) < 12 || p.r.IntN(10) > 0 {
		return
	}
	p.s.Stop(p.now)
	for _, each := range p.held() {
		if each.lease == nil {
			p.end(each, "defer")
			each.hurry = true
		}
	}
}

func (p *play) beginPull() {
	if p.pull != nil || p.s.PullAt() > p.now {
		return
	}
	p.pull, p.sent = p.s.BeginPull(p.now), p.now
	count := len(p.open())
	for _, each := range p.held() {
		if each.lease == nil {
			count++
		}
	}
	p.check(int(p.pull.GetMaxBatchSize()) == modelConcurrency+modelPrefetch-count, "S7: room")
	id := p.pull.GetRequestId()
	first, known := p.ids[id]
	switch {
	case !p.failed:
		p.check(!known, "S9: %s again", id)
	case known:
		p.check(id == p.lastID, "S9: %s again", id)
	default:
		p.check(p.length > 0 && p.now-p.ids[p.lastID] >= p.length, "S9: a new id too early")
	}
	if !known {
		first = p.now
	}
	p.ids[id], p.lastID, p.failed = first, id, false
	p.riding = p.carried(p.pull.Acks, "")
}

func (p *play) pullAnswered() {
	if p.pull == nil {
		return
	}
	length := time.Duration(300+300*p.r.IntN(2)) * ms
	answer := &consumer.PullResponse{
		LeaseMs: ptr(int32(length / ms)), Home: &p.home, More: []*consumer.PullResponse{{}},
	}
	parts := []*consumer.PullResponse{answer, answer.More[0]}
	count := p.r.IntN(int(p.pull.GetMaxBatchSize()) + 1)
	for _, part := range parts {
		part.Context = &consumer.Context{GroupId: "g", Topic: "t", Qid: p.home}
		runs := map[string]int{}
		for range min(count, 2) {
			count--
			each := &given{
				id: int64(len(p.given) + 1), key: []string{"x", "x", "y", "z", ""}[p.r.IntN(5)],
				home: p.home, deadline: p.ids[p.lastID] + length, length: length, hurry: true,
			}
			if runs[each.key] == 0 {
				p.runs++
				runs[each.key] = p.runs
			}
			each.run = runs[each.key]
			if p.s.Stopping() {
				p.end(each, "defer")
			}
			message := &consumer.Message{LeaseId: ptr(each.id), Value: []byte{}}
			if each.key != "" {
				message.OrderKey = []byte(each.key)
			}
			part.Messages = append(part.Messages, message)
			p.given = append(p.given, each)
			p.length = length
		}
	}
	_, err := p.s.PullAnswered(answer, p.now)
	p.check(err == nil, "valid answer refused: %v", err)
	returned(p.riding, true)
	p.pull, p.riding = nil, nil
}

func (p *play) pullFails() {
	if p.pull == nil {
		return
	}
	p.s.PullFailed(p.now, 0)
	returned(p.riding, false)
	p.pull, p.riding, p.failed = nil, nil, true
	p.home = []string{"a:1", "b:2"}[p.r.IntN(2)]
	p.check(p.s.PullAt() > p.now, "no pause after a failure")
}

func (p *play) beginControls() {
	for _, home := range p.s.Homes() {
		if p.s.ControlAt(home) > p.now {
			continue
		}
		control := p.s.BeginControl(home, p.now)
		switch {
		case control.Settle != nil:
			carried := p.carried(control.Settle.Acks, home.Address)
			p.check(len(carried) > 0, "an empty settle")
			p.controls[home] = underWay{control, p.now, carried}
		case control.Extend != nil:
			var named []*given
			shortest := Never
			for _, reference := range control.Extend.Leases {
				each := p.given[reference.LeaseId-1]
				named, shortest = append(named, each), min(shortest, each.length)
			}
			p.check(control.Extend.Ms == int32(shortest/ms), "S5: not the shortest length")
			p.check(slices.Equal(named, p.alive(home)), "S5: not all are extended")
			p.controls[home] = underWay{control, p.now, named}
		}
	}
}

func (p *play) alive(home *Home) []*given {
	return p.where(func(g *given) bool {
		return g.home == home.Address && g.outcome == "" && !g.lost
	})
}

// someControl returns a request in flight.
func (p *play) someControl() (*Home, underWay) {
	for home, control := range p.controls {
		delete(p.controls, home)
		return home, control
	}
	return nil, underWay{}
}

func (p *play) controlAnswered() {
	home, at := p.someControl()
	if home == nil {
		return
	}
	answer := &consumer.AckAnswer{}
	refused := map[*given]bool{}
	for _, each := range at.leases {
		if at.control.Extend != nil && p.r.IntN(5) == 0 {
			refused[each] = true
			answer.NotHeld = append(answer.NotHeld, &consumer.LeaseRef{
				Context: &consumer.Context{Topic: "t", Qid: each.home}, LeaseId: each.id,
			})
		}
	}
	lost := p.s.ControlAnswered(home, answer)
	p.failures[home.Address], p.retryAt[home.Address] = 0, 0
	if at.control.Settle != nil {
		returned(at.leases, true)
		p.check(len(lost) == 0, "a settle lost leases")
		return
	}
	told := 0
	for _, each := range at.leases {
		switch {
		case each.outcome != "":
		case refused[each]:
			each.lost = true
			if each.lease != nil {
				told++
			}
		default:
			each.length = time.Duration(at.control.Extend.Ms) * ms
			each.deadline = at.asked + each.length
		}
	}
	p.check(len(lost) == told, "%d lost leases should be reported", len(lost))
}

func (p *play) controlFails() {
	home, at := p.someControl()
	if home == nil {
		return
	}
	lost := p.s.ControlFailed(home, p.now, 0)
	p.failures[home.Address]++
	p.retryAt[home.Address] = p.now + Backoff(p.failures[home.Address], 0)
	if at.control.Settle != nil {
		returned(at.leases, false)
	}
	told := 0
	for _, each := range p.alive(home) {
		if each.deadline <= p.now {
			each.lost = true
			if each.lease != nil {
				told++
			}
		}
	}
	p.check(len(lost) == told, "%d lost leases should be reported", len(lost))
	pending := p.pending(home.Address)
	if !slices.ContainsFunc(pending, func(g *given) bool { return g.deadline > p.now }) {
		for _, each := range pending {
			each.confirmed = true // S3: dropped
		}
	}
}

func (p *play) pending(home string) []*given {
	return p.where(func(g *given) bool {
		return g.home == home && g.outcome != "" && !g.confirmed && !g.inFlight
	})
}
