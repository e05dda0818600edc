package orderlane

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

// feeder keeps a session supplied. One goroutine pulls; another for each proxy that holds leases
// settles and extends on its own connection, because a waiting pull occupies the first one.
type feeder struct {
	failure error // what ended it; nil while running. Guarded by the consumer's lock, as are:
	tried   int   // failures so far: each advances to the next address
	lines   map[*session.Home]*line
	origins map[*session.Home]address // address of the last pull that returned its leases

	consumer *Consumer
	session  *session.Session
	dialer   *dialer
	pulls    *line
	life     context.Context
	end      context.CancelFunc
	running  sync.WaitGroup
}

func newFeeder(c *Consumer) *feeder {
	f := &feeder{
		consumer: c,
		session:  c.session,
		dialer:   c.settings.dialer(),
		lines:    map[*session.Home]*line{},
		origins:  map[*session.Home]address{},
	}
	f.life, f.end = context.WithCancel(context.Background())
	f.pulls = f.newLine(c.session.PullAt)
	return f
}

// address returns the server to pull from. Caller holds the lock.
func (f *feeder) address() address {
	servers := f.consumer.settings.servers
	return servers[f.tried%len(servers)]
}

// turnOf is the round of a name with several addresses: it advances once all servers have failed.
func (f *feeder) turnOf() int { return f.tried / len(f.consumer.settings.servers) }

func (f *feeder) start() {
	f.running.Add(1)
	go f.pullForever()
}

// turn wakes the lines whose work has become due. Caller holds the lock.
func (f *feeder) turn() {
	f.pulls.turn()
	for _, line := range f.lines {
		line.turn()
	}
}

// close ends all connections and cancels calls in flight.
func (f *feeder) close() {
	f.end()
	f.running.Wait()
}

func (f *feeder) pullForever() {
	defer f.running.Done()
	defer f.pulls.hangUp()
	for f.pulls.wait() {
		failed := f.pullOnce()
		f.consumer.mu.Lock()
		f.meetHomes()
		f.consumer.turn()
		f.consumer.mu.Unlock()
		if failed {
			return
		}
	}
}

// pullOnce reports whether it failed for good.
func (f *feeder) pullOnce() (failed bool) {
	err := f.pull()
	hooks, log := &f.consumer.settings.hooks, f.consumer.settings.logger
	if err == nil {
		return false
	}
	f.pulls.hangUp()
	if f.life.Err() != nil {
		return true
	}
	again := Retriable(err)
	f.consumer.mu.Lock()
	f.session.PullFailed(now(), rand.Float64())
	failures := f.session.PullFailures
	if session.TriesElsewhere(broke(err), failures) {
		f.tried++
	}
	f.consumer.mu.Unlock()
	if hooks.Error != nil {
		f.consumer.tellApart(func() { hooks.Error(err) })
	}
	if again && session.IsNews(failures) {
		log.Warn("pull failed, retrying", "error", err)
	}
	if !again {
		f.consumer.mu.Lock()
		f.failure = err
		f.consumer.mu.Unlock()
	}
	return !again
}

func (f *feeder) pull() error {
	f.consumer.mu.Lock()
	to, turn := f.address(), f.turnOf()
	f.consumer.mu.Unlock()
	if err := f.pulls.connect(to, turn); err != nil {
		return err
	}
	f.consumer.mu.Lock()
	if f.session.Stopping() { // during connecting
		f.consumer.mu.Unlock()
		return nil
	}
	request := f.session.BeginPull(now())
	f.turn() // a waiting pull makes verdicts urgent
	f.consumer.mu.Unlock()
	timeout := time.Duration(request.GetMaxLingerTime())*time.Millisecond + f.dialer.timeout
	var answer consumer.ConsumerServicePullResult
	arguments := &consumer.ConsumerServicePullArgs{Request: request}
	if err := f.pulls.connection.call(f.life, "pull", arguments, &answer, timeout); err != nil {
		return err
	}
	pulled, err := f.pullAnswered(answer.Success)
	if err != nil {
		return &ProtocolError{text: f.pulls.connection.address + ": " + err.Error()}
	}
	if hook := f.consumer.settings.hooks.Pulled; hook != nil {
		f.consumer.tellApart(func() { hook(pulled) })
	}
	return nil
}

func (f *feeder) pullAnswered(answer *consumer.PullResponse) (int, error) {
	f.consumer.mu.Lock()
	defer f.consumer.mu.Unlock()
	pulled, err := f.session.PullAnswered(answer, now())
	if home := f.session.PullHome(); home != nil && pulled > 0 {
		f.origins[home] = f.pulls.connection.to
	}
	return pulled, err
}

// meetHomes keeps one goroutine for each proxy that the session names. Caller holds the lock.
func (f *feeder) meetHomes() {
	homes := f.session.Homes()
	for home, line := range f.lines {
		if homes[home.Address] != home {
			delete(f.lines, home)
			delete(f.origins, home)
			line.end()
		}
	}
	for _, home := range homes {
		if f.lines[home] == nil {
			line := f.newLine(func() time.Duration { return f.session.ControlAt(home) })
			f.lines[home] = line
			f.running.Add(1)
			go f.controlForever(home, line)
		}
	}
}

func (f *feeder) controlForever(home *session.Home, line *line) {
	defer f.running.Done()
	defer line.hangUp()
	for line.wait() {
		f.consumer.mu.Lock()
		control := f.session.BeginControl(home, now())
		settling := home.Settling()
		f.consumer.mu.Unlock()
		if control == (session.Control{}) {
			continue
		}
		answer, err := f.control(home, line, control)
		if err != nil {
			line.hangUp()
			if line.life.Err() != nil {
				return
			}
			f.controlFailed(home, err)
			continue
		}
		f.consumer.mu.Lock()
		tell := f.consumer.leasesLost(f.session.ControlAnswered(home, answer))
		f.consumer.turn()
		f.consumer.mu.Unlock()
		if hook := f.consumer.settings.hooks.Settled; hook != nil && control.Settle != nil {
			f.consumer.tellApart(func() { hook(settling, len(answer.NotHeld)) })
		}
		tell()
	}
}

func (f *feeder) controlFailed(home *session.Home, err error) {
	f.consumer.mu.Lock()
	tell := f.consumer.leasesLost(f.session.ControlFailed(home, now(), rand.Float64()))
	failures := home.Failures
	f.consumer.turn()
	f.consumer.mu.Unlock()
	if session.IsNews(failures) {
		f.consumer.settings.logger.Warn("settle or extend failed, retrying", "error", err)
	}
	if hook := f.consumer.settings.hooks.Error; hook != nil {
		f.consumer.tellApart(func() { hook(err) })
	}
	tell()
}

func (f *feeder) control(
	home *session.Home, line *line, control session.Control,
) (*consumer.AckAnswer, error) {
	if err := f.connectHome(home, line); err != nil {
		return nil, err
	}
	if control.Settle != nil {
		var answer consumer.ConsumerServiceSettleResult
		arguments := &consumer.ConsumerServiceSettleArgs{Request: control.Settle}
		err := line.connection.call(line.life, "settle", arguments, &answer, f.dialer.timeout)
		return answer.Success, err
	}
	var answer consumer.ConsumerServiceExtendResult
	arguments := &consumer.ConsumerServiceExtendArgs{Request: control.Extend}
	err := line.connection.call(line.life, "extend", arguments, &answer, f.dialer.timeout)
	return answer.Success, err
}

// connectHome connects to the proxy that holds the leases. Its own name for itself may be
// unreachable, for example behind a forwarded port; then connectHome tries the address of the pull
// that returned the leases. It tries no other: another proxy would answer that the leases are not
// held, and the verdicts would be lost.
func (f *feeder) connectHome(home *session.Home, line *line) error {
	f.consumer.mu.Lock()
	origin := f.origins[home]
	f.consumer.mu.Unlock()
	if own, err := parseAddress(home.Address); home.Address != "" && err == nil {
		if line.connect(own, home.Failures) == nil {
			return nil
		}
	}
	return line.connect(origin, home.Failures)
}

// line is one connection and the goroutine that sleeps until it has work due.
type line struct {
	connection *connection // of the goroutine; nil: none

	feeder  *feeder
	due     func() time.Duration // under the lock
	life    context.Context
	end     context.CancelFunc
	planned time.Duration // end of the goroutine's sleep; 0: awake. Under the lock
	wake    chan struct{}
	timer   *time.Timer
}

func (f *feeder) newLine(due func() time.Duration) *line {
	l := &line{feeder: f, due: due, wake: make(chan struct{}, 1), timer: time.NewTimer(0)}
	l.life, l.end = context.WithCancel(f.life)
	return l
}

// wait sleeps until work is due; it returns false at the end.
func (l *line) wait() bool {
	mu := &l.feeder.consumer.mu
	for l.life.Err() == nil {
		mu.Lock()
		at, moment := l.due(), now()
		l.planned = at
		if at <= moment {
			l.planned = 0
			mu.Unlock()
			return true
		}
		mu.Unlock()
		l.timer.Reset(at - moment)
		select {
		case <-l.life.Done():
		case <-l.wake:
		case <-l.timer.C:
		}
	}
	return false
}

// turn wakes the goroutine if it would sleep too long. Caller holds the lock.
func (l *line) turn() {
	if l.planned == 0 || l.due() >= l.planned {
		return
	}
	l.planned = 0
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *line) connect(to address, turn int) error {
	if l.connection != nil && !l.connection.closed {
		return nil
	}
	opened, err := l.feeder.dialer.open(l.life, to, turn)
	if err != nil {
		return err
	}
	l.connection = opened
	return nil
}

func (l *line) hangUp() {
	if l.connection != nil {
		l.connection.close()
		l.connection = nil
	}
}
