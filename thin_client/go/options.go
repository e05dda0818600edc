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

	"orderlane/internal/session"
)

// clientVersion is what the proxy's statistics show.
const clientVersion = "orderlane-go"

// longest is what a time may be, so that sums of them are still times. Who gives more means: for
// ever.
const longest = 100 * 365 * 24 * time.Hour

// batchRun is MaxRun for RunBatches where the application says nothing.
const batchRun = 32

// Option is for consumers, pullers and producers.
type Option interface {
	ConsumerOption
	PullerOption
	ProducerOption
}

// ConsumerOption is for NewConsumer.
type ConsumerOption interface{ ofConsumer(*settings) }

// PullerOption is for NewPuller.
type PullerOption interface{ ofPuller(*settings) }

// ProducerOption is for NewProducer.
type ProducerOption interface{ ofProducer(*settings) }

// ReaderOption is for consumers and pullers.
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

// settings are what was given, with the defaults for the rest.
type settings struct {
	servers        []address
	group          string
	topics         []string
	clientID       string
	concurrency    int
	prefetch       int // negative: not given
	maxRun         int // 0: not given
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

// Topics asks for messages of these alone; without it they may be of any topic of the group.
func Topics(topics ...string) ReaderOption {
	return readerOption{func(s *settings) {
		if len(topics) == 0 || slices.Contains(topics, "") {
			s.fail("Topics is empty, or a name in it is; leave it out for every topic of the group")
		}
		s.topics = slices.Clone(topics)
	}}
}

// ClientID names the client on the operator's pages. Default: host, process and a random part.
func ClientID(id string) ReaderOption {
	return readerOption{func(s *settings) { s.clientID = id }}
}

// Concurrency is how many keys are handled at a time. Default 8.
func Concurrency(keys int) ConsumerOption {
	return consumerOption(func(s *settings) {
		if keys < 1 {
			s.fail("Concurrency is %d: expected at least 1", keys)
		}
		s.concurrency = keys
	})
}

// Prefetch is how many messages wait here beside those that are handled. Default: as many as
// Concurrency, and at least twice MaxRun if that is above 1; 0 leaves every waiting message to
// other clients.
func Prefetch(messages int) ConsumerOption {
	return consumerOption(func(s *settings) {
		if messages < 0 {
			s.fail("Prefetch is %d: expected 0 or more", messages)
		}
		s.prefetch = messages
	})
}

// MaxRun lets so many consecutive messages of one order key come together, to be handled one after
// the other: a busy key needs no round trip a message. At the first that fails those behind it go
// back, unhandled and uncounted. Default 1, and 32 for RunBatches.
func MaxRun(messages int) ConsumerOption {
	return consumerOption(func(s *settings) {
		if messages < 1 {
			s.fail("MaxRun is %d: expected at least 1", messages)
		}
		s.maxRun = messages
	})
}

// AckLinger is how long an ack waits for the next pull to ride on. More saves requests when
// handlers are slow; the message's successor waits as long. Default 20 ms.
func AckLinger(wait time.Duration) ConsumerOption {
	return consumerOption(func(s *settings) { s.ackLinger = s.notNegative("AckLinger", wait) })
}

// DrainTimeout is how long handlers may go on after the end of Run's context. Default 30 s.
func DrainTimeout(limit time.Duration) ConsumerOption {
	return consumerOption(func(s *settings) { s.drainTimeout = s.notNegative("DrainTimeout", limit) })
}

// RequestTimeout is how long to wait for a connection or an answer; a pull's own wait comes on top.
// Below the length of leases, or a proxy that hangs costs the leases. Default 3 s.
func RequestTimeout(limit time.Duration) ReaderOption {
	return readerOption{func(s *settings) {
		if limit <= 0 {
			s.fail("RequestTimeout is %v: expected more than 0", limit)
		}
		s.requestTimeout = min(limit, longest)
	}}
}

// SendTimeout is how long a send whose context has no deadline may try. Default 10 s.
func SendTimeout(limit time.Duration) ProducerOption {
	return producerOption(func(s *settings) {
		if limit <= 0 {
			s.fail("SendTimeout is %v: expected more than 0", limit)
		}
		s.sendTimeout = min(limit, longest)
	})
}

// Token says to the proxy who is asking. Use TLS with it: it travels as it is.
func Token(token string) Option { return anyOption(func(s *settings) { s.token = token }) }

// TLS encrypts all connections. Where the configuration names no server, the certificate has to be
// for the host that was dialled. LoadTLS makes a configuration from files.
func TLS(config *tls.Config) Option { return anyOption(func(s *settings) { s.tls = config }) }

// Trace carries trace contexts from producers to handlers.
func Trace(tracer Tracer) Option { return anyOption(func(s *settings) { s.tracer = tracer }) }

// Logger takes what the library has to say. Default: slog's own.
func Logger(logger *slog.Logger) Option {
	return anyOption(func(s *settings) {
		if logger != nil {
			s.logger = logger
		}
	})
}

// Observe has a consumer call these, for histories and metrics.
func Observe(hooks Hooks) ConsumerOption {
	return consumerOption(func(s *settings) { s.hooks = hooks })
}

// Hooks are told what a consumer does; nil ones are not called. They are called in the goroutines
// of the consumer, several at a time, and must not block. One that panics is logged.
type Hooks struct {
	// HandleStart: the message goes to a handler.
	HandleStart func(*Message)
	// HandleEnd: its handler ended; the outcome is ok, retry, reject or defer. The next message of
	// its key begins after that.
	HandleEnd func(message *Message, outcome string)
	// Pulled: a pull was answered with so many messages.
	Pulled func(messages int)
	// Settled: a settle was answered. It carried so many verdicts, notHeld of them on leases that
	// were over. Verdicts that ride on pulls are not told.
	Settled func(settled, notHeld int)
	// LeaseLost: the message is with a handler, and may now go to someone else as well.
	LeaseLost func(*Message)
	// Error: a request failed. It is tried again if Retriable(err).
	Error func(err error)
}

// TLSFiles name files in PEM format; any may be left out.
type TLSFiles struct {
	// CA holds the certificates of authorities; without it the system's are trusted.
	CA string
	// Cert and Key are the client's own, for proxies that ask for one.
	Cert, Key string
	// ServerName is whose certificate the proxy has to have, if not that of the host dialled.
	ServerName string
}

// LoadTLS makes a configuration for the option TLS.
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
		logger:         slog.Default(),
	}
	var err error
	if s.servers, err = parseAddresses(servers); err != nil {
		s.failed = err
	}
	return s
}

func (s *settings) fail(format string, values ...any) {
	if s.failed == nil {
		s.failed = fmt.Errorf(format, values...)
	}
}

func (s *settings) notNegative(name string, value time.Duration) time.Duration {
	if value < 0 {
		s.fail("%s is %v: expected 0 or more", name, value)
	}
	return min(value, longest)
}

func (s *settings) setGroup(group string) {
	if group == "" {
		s.fail("group is empty: expected the name of a consumer group")
	}
	s.group = group
}

func (s *settings) dialer() *dialer { return &dialer{tls: s.tls, timeout: s.requestTimeout} }

// session options, where defaultRun is MaxRun if the application gave none.
func (s *settings) session(defaultRun int) session.Options {
	maxRun := s.maxRun
	if maxRun == 0 {
		maxRun = defaultRun
	}
	prefetch := s.prefetch
	if prefetch < 0 {
		prefetch = s.concurrency
		if maxRun > 1 { // one at work, and room for the next
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

// defaultClientID is unique, and says to an operator where to look.
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
		panic(err) // no source of randomness: Go's own documentation says that it cannot happen
	}
	return hex.EncodeToString(random)
}
