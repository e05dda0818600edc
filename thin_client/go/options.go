package orderlane

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

// clientVersion is shown in the proxy's statistics.
const clientVersion = "orderlane-go"

// longest caps durations, so that sums of them do not overflow.
const longest = 100 * 365 * 24 * time.Hour

// mostMessages limits counts of messages and keys: sums of them must fit the wire's 32 bits.
const mostMessages = 1_000_000

// batchRun is the default of WithMaxRun for RunBatches.
const batchRun = 32

// Option configures consumers, pullers and producers.
type Option interface {
	ConsumerOption
	PullerOption
	ProducerOption
}

// ConsumerOption configures NewConsumer.
type ConsumerOption interface{ ofConsumer(*settings) }

// PullerOption configures NewPuller.
type PullerOption interface{ ofPuller(*settings) }

// ProducerOption configures NewProducer.
type ProducerOption interface{ ofProducer(*settings) }

// ReaderOption configures consumers and pullers.
type ReaderOption interface {
	ConsumerOption
	PullerOption
}

type (
	anyOption      func(*settings)
	consumerOption func(*settings)
	producerOption func(*settings)
	readerOption   struct{ consumerOption }
)

func (o anyOption) ofConsumer(s *settings)      { o(s) }
func (o anyOption) ofPuller(s *settings)        { o(s) }
func (o anyOption) ofProducer(s *settings)      { o(s) }
func (o consumerOption) ofConsumer(s *settings) { o(s) }
func (o producerOption) ofProducer(s *settings) { o(s) }
func (o readerOption) ofPuller(s *settings)     { o.consumerOption(s) }

// settings are the options given, and defaults for the rest.
type settings struct {
	servers        []address
	group          string
	topics         []string
	clientID       string
	concurrency    int
	prefetch       int // negative: default
	maxRun         int // 0: default
	ackLinger      time.Duration
	requestTimeout time.Duration
	drainTimeout   time.Duration
	sendTimeout    time.Duration
	token          string
	tls            *tls.Config
	hooks          Hooks
	tracer         Tracer
	logger         *slog.Logger
	failed         error
}

// WithTopics limits consumption to these topics. Default: all topics of the group.
func WithTopics(topics ...string) ReaderOption {
	topics = slices.Clone(topics) // the caller may change its slice
	return readerOption{func(s *settings) {
		if len(topics) == 0 || slices.Contains(topics, "") {
			s.fail("WithTopics got no or an empty name: omit it to consume all topics of the group")
		}
		for _, topic := range topics {
			s.checkText("a name in WithTopics", topic)
		}
		s.topics = topics
	}}
}

// WithClientID sets the name shown to operators. Default: host, process and a random part.
func WithClientID(id string) ReaderOption {
	return readerOption{func(s *settings) {
		if id == "" {
			s.fail("WithClientID got an empty name: omit it for the default")
		}
		s.checkText("the name in WithClientID", id)
		s.clientID = id
	}}
}

// WithConcurrency sets how many keys are handled in parallel. Default 8.
func WithConcurrency(keys int) ConsumerOption {
	return consumerOption(func(s *settings) {
		s.concurrency = s.count("WithConcurrency", keys, 1)
	})
}

// WithPrefetch sets how many messages are buffered beyond those being handled. 0 leaves waiting
// messages to other clients. Default: as many as
// WithConcurrency, and at least twice WithMaxRun if that is above 1.
func WithPrefetch(messages int) ConsumerOption {
	return consumerOption(func(s *settings) { s.prefetch = s.count("WithPrefetch", messages, 0) })
}

// WithMaxRun sets how many consecutive messages of one order key may arrive together, to be handled
// in sequence, which saves a busy key a round trip per message. When one fails, those behind it are
// released without counting an attempt. Default 1, and 32 for RunBatches.
func WithMaxRun(messages int) ConsumerOption {
	return consumerOption(func(s *settings) { s.maxRun = s.count("WithMaxRun", messages, 1) })
}

// WithAckLinger sets how long an ack waits to ride on the next pull. A longer wait saves requests
// if handlers are slow, but delays the key's next message. Default 20 ms.
func WithAckLinger(wait time.Duration) ConsumerOption {
	return consumerOption(func(s *settings) { s.ackLinger = s.notNegative("WithAckLinger", wait) })
}

// WithDrainTimeout sets how long handlers may continue after the end of Run's context.
// Default 30 s.
func WithDrainTimeout(limit time.Duration) ConsumerOption {
	return consumerOption(func(s *settings) {
		s.drainTimeout = s.notNegative("WithDrainTimeout", limit)
	})
}

// WithRequestTimeout limits the wait for a connection or an answer, beyond a pull's own wait. Keep
// it below the lease length, or a hanging proxy costs the leases. Default 3 s.
func WithRequestTimeout(limit time.Duration) ReaderOption {
	return readerOption{func(s *settings) {
		if limit <= 0 {
			s.fail("WithRequestTimeout(%v): expected more than 0", limit)
		}
		s.requestTimeout = min(limit, longest)
	}}
}

// WithSendTimeout limits a send whose context has no deadline. Default 10 s.
func WithSendTimeout(limit time.Duration) ProducerOption {
	return producerOption(func(s *settings) {
		if limit <= 0 {
			s.fail("WithSendTimeout(%v): expected more than 0", limit)
		}
		s.sendTimeout = min(limit, longest)
	})
}

// WithToken authenticates the client. It is sent in plain text: use TLS with it.
func WithToken(token string) Option {
	return anyOption(func(s *settings) {
		if !utf8.ValidString(token) { // the error does not show it
			s.fail("the token in WithToken is not valid UTF-8")
		}
		s.token = token
	})
}

// WithTLS encrypts all connections. If the configuration sets no ServerName, the certificate must
// match the host dialled. LoadTLS makes a configuration from files.
func WithTLS(config *tls.Config) Option {
	config = config.Clone() // the caller may change its own
	return anyOption(func(s *settings) {
		if config == nil {
			s.fail("WithTLS got no configuration: omit it for connections without TLS")
		}
		s.tls = config
	})
}

// WithTracer propagates trace contexts from producers to handlers.
func WithTracer(tracer Tracer) Option { return anyOption(func(s *settings) { s.tracer = tracer }) }

// WithLogger sets the library's logger. Default: slog.Default().
func WithLogger(logger *slog.Logger) Option {
	return anyOption(func(s *settings) {
		if logger != nil {
			s.logger = careful(logger)
		}
	})
}

// WithHooks registers hooks, for histories and metrics.
func WithHooks(hooks Hooks) ConsumerOption {
	return consumerOption(func(s *settings) { s.hooks = hooks })
}

// Hooks are callbacks for a consumer's events; nil ones are skipped. They are called concurrently
// from the consumer's goroutines and must not block. A panic in one is logged.
type Hooks struct {
	// HandleStart: a handler gets the message.
	HandleStart func(*Message)
	// HandleEnd: the message's handler ended; outcome is ok, retry, reject or defer. The next
	// message of its key starts after this call.
	HandleEnd func(message *Message, outcome string)
	// Pulled: a pull was answered with this number of messages.
	Pulled func(messages int)
	// Settled: a settle was answered. It carried settled verdicts, notHeld of them on expired
	// leases. Verdicts that ride on pulls are not reported.
	Settled func(settled, notHeld int)
	// LeaseLost: the message is with a handler, and may now be delivered to another client.
	LeaseLost func(*Message)
	// Error: a request failed. It is retried if Retriable(err).
	Error func(err error)
}

// TLSFiles names PEM files, all of them optional.
type TLSFiles struct {
	// CA holds the trusted authorities. Default: the system's.
	CA string
	// Cert and Key are the client's own, for proxies that require a client certificate.
	Cert, Key string
	// ServerName is the name in the proxy's certificate, if it differs from the host dialled.
	ServerName string
}

// LoadTLS makes a configuration for WithTLS.
func LoadTLS(files TLSFiles) (*tls.Config, error) {
	config := &tls.Config{ServerName: files.ServerName, MinVersion: tls.VersionTLS12}
	if files.CA != "" {
		text, err := os.ReadFile(files.CA)
		if err != nil {
			return nil, fmt.Errorf("the CA file cannot be read: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate in PEM format", files.CA)
		}
	}
	if (files.Cert == "") != (files.Key == "") {
		return nil, errors.New("a client certificate needs both files: Cert and Key")
	}
	if files.Cert != "" {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			return nil, fmt.Errorf("the client certificate %s cannot be used: %w", files.Cert, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func newSettings(servers string) *settings {
	s := &settings{
		clientID:       defaultClientID(),
		concurrency:    8,
		prefetch:       -1,
		ackLinger:      20 * time.Millisecond,
		requestTimeout: 3 * time.Second,
		drainTimeout:   30 * time.Second,
		sendTimeout:    10 * time.Second,
		logger:         careful(slog.Default()),
	}
	var err error
	if s.servers, err = parseAddresses(servers); err != nil {
		s.failed = err
	}
	return s
}

// apply applies the options of one of the constructors.
func apply[O any](s *settings, options []O, one func(O, *settings)) {
	for n, option := range options {
		if any(option) == nil {
			s.fail("option %d is nil: omit it, or pass one such as WithToken", n+1)
			continue
		}
		one(option, s)
	}
}

func (s *settings) fail(format string, values ...any) {
	if s.failed == nil {
		s.failed = fmt.Errorf(format, values...)
	}
}

func (s *settings) count(name string, value, least int) int {
	if value < least || value > mostMessages {
		s.fail("%s(%d): expected %d to %d", name, value, least, mostMessages)
	}
	return value
}

// checkText refuses a text that no proxy can read.
func (s *settings) checkText(name, text string) {
	if !utf8.ValidString(text) {
		s.fail("%s is %q: expected valid UTF-8", name, text)
	}
}

func (s *settings) notNegative(name string, value time.Duration) time.Duration {
	if value < 0 {
		s.fail("%s(%v): expected 0 or more", name, value)
	}
	return min(value, longest)
}

func (s *settings) setGroup(group string) {
	if group == "" {
		s.fail("group is empty: expected the name of a consumer group")
	}
	s.checkText("group", group)
	s.group = group
}

func (s *settings) dialer() *dialer { return &dialer{tls: s.tls, timeout: s.requestTimeout} }

// session returns the session options; defaultRun is the default of WithMaxRun.
func (s *settings) session(defaultRun int) session.Options {
	maxRun := s.maxRun
	if maxRun == 0 {
		maxRun = defaultRun
	}
	prefetch := s.prefetch
	if prefetch < 0 {
		prefetch = s.concurrency
		if maxRun > 1 { // one run in progress, and room for the next
			prefetch = max(prefetch, 2*maxRun)
		}
	}
	return session.Options{
		Group:         s.group,
		Topics:        s.topics,
		ClientID:      s.clientID,
		Version:       clientVersion,
		Token:         s.token,
		Concurrency:   s.concurrency,
		Prefetch:      prefetch,
		AckLinger:     s.ackLinger,
		MaxRun:        maxRun,
		RequestPrefix: randomHex(4) + "-",
	}
}

// defaultClientID is unique and shows operators where the client runs.
func defaultClientID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s@%d-%s", host, os.Getpid(), randomHex(2))
}

func randomHex(bytes int) string {
	random := make([]byte, bytes)
	if _, err := rand.Read(random); err != nil {
		panic(err) // no source of randomness: cannot happen, as crypto/rand documents
	}
	return hex.EncodeToString(random)
}
