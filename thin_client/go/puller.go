package orderlane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

// Puller pulls and settles messages of a group call by call, for scripts and tests.
//
// It extends, retries and orders nothing: of the messages pulled, handle those of one OrderKey one
// after the other, each before its Deadline. After an error the next call reconnects. Goroutines
// that share a Puller wait for each other, at most until their contexts end.
type Puller struct {
	settings   *settings
	dialer     *dialer
	life       context.Context // until Close
	end        context.CancelCauseFunc
	turn       chan struct{} // full during a call
	connection *connection   // of the call
	tried      int           // of the call: advances to the next address
	failures   int           // of the call: consecutive failures of pulls
}

// NewPuller makes a puller of the group at the servers, with arguments as in NewConsumer.
func NewPuller(servers, group string, options ...PullerOption) (*Puller, error) {
	settings := newSettings(servers)
	settings.setGroup(group)
	apply(settings, options, PullerOption.ofPuller)
	if settings.failed != nil {
		return nil, settings.failed
	}
	p := &Puller{settings: settings, dialer: settings.dialer(), turn: make(chan struct{}, 1)}
	p.life, p.end = context.WithCancelCause(context.Background())
	return p, nil
}

// Pull returns up to most messages, waiting up to wait for the first; possibly none.
func (p *Puller) Pull(ctx context.Context, most int, wait time.Duration) ([]*Message, error) {
	if most < 1 || most > mostMessages {
		return nil, fmt.Errorf("most is %d: expected 1 to %d messages", most, mostMessages)
	}
	if wait < 0 {
		return nil, fmt.Errorf("wait is %v: expected 0 or more", wait)
	}
	many, size, linger := true, int32(most), milliseconds(wait)
	version := clientVersion
	request := &consumer.PullRequest{
		GroupId: p.settings.group, Topics: p.settings.topics, MaxBatchSize: &size,
		MaxLingerTime: &linger, Version: &version, ClientId: &p.settings.clientID,
		ManyQueues: &many, Token: notEmpty(p.settings.token),
	}
	var answer consumer.ConsumerServicePullResult
	arguments := &consumer.ConsumerServicePullArgs{Request: request}
	sent, err := p.call(ctx, "pull", arguments, &answer, p.settings.requestTimeout+min(wait, longest))
	if err != nil {
		return nil, err
	}
	leases, err := session.ReadAnswer(answer.Success, sent)
	if err != nil {
		return nil, &ProtocolError{text: err.Error()}
	}
	messages := make([]*Message, len(leases))
	for n, lease := range leases {
		messages[n] = newMessage(lease)
	}
	return messages, nil
}

// Settle acks a message if err is nil. Retry, RetryAfter, Reject and Defer give other outcomes; any
// other error means retry. False: the lease had expired, and another client may have the message.
func (p *Puller) Settle(
	ctx context.Context, message *Message, outcome error,
) (held bool, err error) {
	if err := checkPulled(message); err != nil {
		return false, err
	}
	verdict, _ := outcomeOf(outcome)
	var verdicts session.Verdicts
	verdicts.Add(message.lease, verdict, now())
	request := &consumer.AckRequest{
		GroupId: p.settings.group, Acks: verdicts.Batches(), ClientId: &p.settings.clientID,
		Token: notEmpty(p.settings.token),
	}
	var answer consumer.ConsumerServiceSettleResult
	arguments := &consumer.ConsumerServiceSettleArgs{Request: request}
	if _, err := p.call(ctx, "settle", arguments, &answer, p.settings.requestTimeout); err != nil {
		return false, err
	}
	return len(answer.Success.NotHeld) == 0, nil
}

// Extend makes the lease expire this long from now, at most one visibility timeout. False: it had
// already expired.
func (p *Puller) Extend(
	ctx context.Context, message *Message, length time.Duration,
) (held bool, err error) {
	if err := checkPulled(message); err != nil {
		return false, err
	}
	if length < time.Millisecond {
		return false, fmt.Errorf("length is %v: expected at least 1ms", length)
	}
	request := &consumer.ExtendRequest{
		GroupId: p.settings.group, Leases: []*consumer.LeaseRef{message.lease.Reference()},
		Ms: milliseconds(length), ClientId: &p.settings.clientID, Token: notEmpty(p.settings.token),
	}
	var answer consumer.ConsumerServiceExtendResult
	arguments := &consumer.ConsumerServiceExtendArgs{Request: request}
	asked, err := p.call(ctx, "extend", arguments, &answer, p.settings.requestTimeout)
	if err != nil {
		return false, err
	}
	if len(answer.Success.NotHeld) > 0 {
		message.lease.SetLost()
		return false, nil
	}
	message.lease.SetDeadline(asked + min(length, longest))
	return true, nil
}

func checkPulled(message *Message) error {
	if message == nil || message.lease == nil {
		return errors.New("the message has no lease: expected one that Pull returned")
	}
	return nil
}

// Close closes the connection. A call in progress fails, and so does one that waits for it.
func (p *Puller) Close() error {
	p.end(fmt.Errorf("puller of %s: %w", p.settings.group, ErrClosed))
	p.turn <- struct{}{}
	p.hangUp()
	<-p.turn
	return nil
}

// call sends a request and returns when it was sent.
func (p *Puller) call(
	ctx context.Context, method string, arguments thrift.TStruct, answer result,
	timeout time.Duration,
) (sent time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.life, func() { cancel(context.Cause(p.life)) })()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
	}
	if p.life.Err() != nil {
		return 0, context.Cause(p.life)
	}
	if ctx.Err() != nil {
		return 0, ended(ctx, method+" was not sent")
	}
	if err := p.connect(ctx); err != nil {
		return 0, err
	}
	sent = now()
	err = p.connection.call(ctx, method, arguments, answer, timeout)
	if err != nil && !leavesConnection(err) {
		p.hangUp()
	}
	if method == "pull" { // others stay: only this proxy has the leases
		p.pulled(ctx, err, now()-sent >= timeout-p.settings.requestTimeout)
	}
	return sent, err
}

// pulled lets the next call go to another address if this one does not answer. A pull that was
// cancelled before it was due says nothing about its proxy.
func (p *Puller) pulled(ctx context.Context, err error, due bool) {
	cause := context.Cause(ctx)
	switch {
	case err == nil || leavesConnection(err):
		p.failures = 0
	case cause == nil || due && errors.Is(cause, context.DeadlineExceeded):
		p.failures++
		if session.TriesElsewhere(broke(err), p.failures) {
			p.tried++
		}
	}
}

func (p *Puller) connect(ctx context.Context) (err error) {
	if p.connection != nil && !p.connection.closed {
		return nil
	}
	servers := p.settings.servers
	for range servers {
		to, turn := servers[p.tried%len(servers)], p.tried/len(servers)
		if p.connection, err = p.dialer.open(ctx, to, turn); err == nil || ctx.Err() != nil {
			return err
		}
		p.tried++
	}
	return err
}

func (p *Puller) hangUp() {
	if p.connection != nil {
		p.connection.close()
		p.connection = nil
	}
}

func milliseconds(length time.Duration) int32 {
	return int32(min(max(length.Milliseconds(), 0), math.MaxInt32))
}
