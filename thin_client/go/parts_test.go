package orderlane

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
	"github.com/orderlane/orderlane/thin_client/go/internal/session"
)

func TestAddressesAreParsed(t *testing.T) {
	texts := map[string]string{
		"proxy:9714": "proxy:9714", " 10.0.0.1 ": "10.0.0.1:9713", "[::1]:9714": "[::1]:9714",
		"[fe80::1]": "[fe80::1]:9713", "a-b.example": "a-b.example:9713",
	}
	for text, want := range texts {
		found, err := parseAddresses(text)
		if err != nil || len(found) != 1 || found[0].String() != want {
			t.Errorf("%q: got %v, %v", text, found, err)
		}
	}
	if found, err := parseAddresses("a:1, b:2"); err != nil || len(found) != 2 {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestErrorsOfInvalidAddressesShowAValidOne(t *testing.T) {
	others := []string{"", ":9713", "a:b", "a:0", "a:70000", "::1", "a b:1", "h:1:2", "a:+1", "[a]:1",
		"a,,b", "[::1", "[1.2.3.4]:5"}
	for _, text := range others {
		if _, err := parseAddresses(text); err == nil || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	ctx := context.Background()
	options := map[string]ConsumerOption{
		"WithConcurrency(0)":      WithConcurrency(0),
		"expected 1 to 1000000":   WithConcurrency(math.MaxInt32),
		"WithPrefetch(-1)":        WithPrefetch(-1),
		"expected 0 to 1000000":   WithPrefetch(math.MaxInt32),
		"WithMaxRun(0)":           WithMaxRun(0),
		"WithTopics got no":       WithTopics(),
		"an empty name":           WithTopics("orders", ""),
		"WithAckLinger(-1ns)":     WithAckLinger(-1),
		"WithDrainTimeout(-1ns)":  WithDrainTimeout(-1),
		"WithRequestTimeout(0s)":  WithRequestTimeout(0),
		"a name in WithTopics":    WithTopics("\xff"),
		"omit it for the default": WithClientID(""),
		"WithClientID is":         WithClientID("\xff"),
		"the token in WithToken":  WithToken("\xff"),
		"without TLS":             WithTLS(nil),
		"option 1 is nil":         nil,
	}
	for want, option := range options {
		if _, err := NewConsumer(ctx, "a", "g", option); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := NewConsumer(ctx, "a", ""); err == nil {
		t.Error("NewConsumer accepted an empty group")
	}
	if _, err := NewConsumer(ctx, "a", "\xff"); err == nil {
		t.Error("NewConsumer accepted a group that is not UTF-8")
	}
	var none context.Context
	if _, err := NewConsumer(none, "a", "g"); err == nil {
		t.Error("NewConsumer accepted a nil context")
	}
	if _, err := NewProducer("a", nil); err == nil {
		t.Error("NewProducer accepted a nil option")
	}
	if _, err := NewPuller("a", "g", nil); err == nil {
		t.Error("NewPuller accepted a nil option")
	}
	if _, err := NewProducer("a:b"); err == nil {
		t.Error("NewProducer accepted an empty address")
	}
	if _, err := NewPuller("a", ""); err == nil {
		t.Error("NewPuller accepted an empty group")
	}
}

func TestRunsRaiseTheDefaultPrefetch(t *testing.T) {
	cases := map[string]struct {
		options []ConsumerOption
		want    int
	}{
		"default":    {nil, 8},
		"as many":    {[]ConsumerOption{WithConcurrency(20)}, 20},
		"runs":       {[]ConsumerOption{WithMaxRun(16)}, 32},
		"short runs": {[]ConsumerOption{WithConcurrency(9), WithMaxRun(2)}, 9},
		"said":       {[]ConsumerOption{WithPrefetch(0), WithMaxRun(16)}, 0},
	}
	for name, each := range cases {
		settings := newSettings("a")
		for _, option := range each.options {
			option.ofConsumer(settings)
		}
		if got := settings.session(1).Prefetch; got != each.want {
			t.Errorf("%s: got %d, want %d", name, got, each.want)
		}
	}
}

func TestErrorsNameUnusableTLSFiles(t *testing.T) {
	empty := t.TempDir() + "/empty.pem"
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, files := range map[string]TLSFiles{
		"no such file":             {CA: t.TempDir() + "/none.pem"},
		"holds no certificate":     {CA: empty},
		"needs both files":         {Cert: empty},
		"empty.pem cannot be used": {Cert: empty, Key: empty},
	} {
		if _, err := LoadTLS(files); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestALongRetryDelayFitsTheWire(t *testing.T) {
	outcome, _ := outcomeOf(RetryAfter(math.MaxInt64))
	if *outcome.AfterMs != math.MaxInt32 {
		t.Errorf("got %d", *outcome.AfterMs)
	}
	if outcome, _ = outcomeOf(RetryAfter(-time.Second)); *outcome.AfterMs != 0 {
		t.Errorf("got %d", *outcome.AfterMs)
	}
}

func TestReasonsAreShortAndValid(t *testing.T) {
	outcome, planned := outcomeOf(errors.New("\xff" + strings.Repeat("é", 300)))
	if planned || outcome.Kind != session.Retry || outcome.Reason != "?"+strings.Repeat("é", 199) {
		t.Errorf("got %v, %t", outcome, planned)
	}
}

// ---- answers ---------------------------------------------------------------------------------

// answerFrame encodes an answer to the first pull.
func answerFrame(t testing.TB, kind thrift.TMessageType, answer thrift.TStruct) []byte {
	t.Helper()
	out := thrift.NewTMemoryBuffer()
	if err := encode(out, "pull", 1, answer); err != nil {
		t.Fatal(err)
	}
	frame := out.Bytes()[4:]
	frame[1] = frame[1]&0x1f | byte(kind)<<5
	return frame
}

func decodePull(frame []byte) error {
	return decode(frame, "pull", 1, &consumer.ConsumerServicePullResult{}, "proxy:1")
}

func TestAnswersAndFaultsAreDistinguished(t *testing.T) {
	reply := &consumer.ConsumerServicePullResult{Success: &consumer.PullResponse{}}
	if err := decodePull(answerFrame(t, thrift.REPLY, reply)); err != nil {
		t.Errorf("a reply: %v", err)
	}
	for kind, again := range map[int32]bool{
		thrift.INTERNAL_ERROR: true, thrift.UNKNOWN_METHOD: false,
	} {
		fault := thrift.NewTApplicationException(kind, "disk full")
		err := decodePull(answerFrame(t, thrift.EXCEPTION, fault.(thrift.TStruct)))
		var told *FaultError
		if !errors.As(err, &told) || Retriable(err) != again ||
			!strings.Contains(err.Error(), "disk full") {
			t.Errorf("a fault: %v", err)
		}
	}
	var protocol *ProtocolError
	another := decode(answerFrame(t, thrift.REPLY, reply), "pull", 2, reply, "proxy:1")
	if !errors.As(another, &protocol) || !strings.Contains(another.Error(), "pull number 2 was") {
		t.Errorf("answer to another call: %v", another)
	}
	nothing := decodePull(answerFrame(t, thrift.REPLY, &consumer.ConsumerServicePullResult{}))
	if !errors.As(nothing, &protocol) || !strings.Contains(nothing.Error(), "an empty answer") {
		t.Errorf("nothing: %v", nothing)
	}
}

// Without a limit, a few bytes per level would exhaust the stack, which is fatal.
func TestDeepAnswersAreRefused(t *testing.T) {
	deep := &consumer.PullResponse{}
	for range 1000 {
		deep = &consumer.PullResponse{More: []*consumer.PullResponse{deep}}
	}
	err := decodePull(answerFrame(t, thrift.REPLY, &consumer.ConsumerServicePullResult{Success: deep}))
	if !errors.Is(err, errTooDeep) {
		t.Errorf("got %v", err)
	}
}

// Arbitrary bytes must give an error and have no other effect.
func FuzzAnswer(f *testing.F) {
	lease, text := int64(1), "text"
	full := &consumer.PullResponse{
		Context: &consumer.Context{GroupId: "g", Topic: "t", Qid: "q"}, Home: &text,
		Messages: []*consumer.Message{{LeaseId: &lease, Value: []byte("body"), MessageId: &text}},
	}
	frame := answerFrame(f, thrift.REPLY, &consumer.ConsumerServicePullResult{Success: full})
	f.Add(frame)
	for cut := range len(frame) {
		f.Add(frame[:cut])
	}
	f.Add([]byte("\x82\x41\x01\x04pull\x0c\x00\x00\x19\xfc\xff\xff\xff\xff\x07"))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		var result consumer.ConsumerServicePullResult
		if err := decode(frame, "pull", 1, &result, "proxy:1"); err == nil {
			_, _ = session.ReadAnswer(result.Success, 0)
		}
	})
}

// serverThat starts a server that passes each connection to serve, and keeps it open for the test.
func serverThat(t *testing.T, serve func(net.Conn)) address {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		listener.Close()
		close(ended)
	})
	go func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer socket.Close() // the garbage collector would close it at any time
				serve(socket)
				<-ended
			}()
		}
	}()
	found, err := parseAddress(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestACallEndsWhateverTheServerDoes(t *testing.T) {
	answers := map[string]struct {
		serve func(net.Conn)
		want  string
		broke bool
	}{
		"silence": {func(socket net.Conn) { io.Copy(io.Discard, socket) }, "within 150ms", false},
		"the end": {func(socket net.Conn) {
			io.ReadAtLeast(socket, make([]byte, 100), 10)
			socket.Close()
		}, "closed the connection", true},
		"half a frame": {func(socket net.Conn) {
			io.ReadAtLeast(socket, make([]byte, 100), 10)
			socket.Write([]byte{0, 0, 0, 9, 1})
		}, "within 150ms", false},
		"another protocol": {func(socket net.Conn) { socket.Write([]byte("HTTP/1.1")) },
			"not a Thrift frame length", false},
		"a negative length": {func(socket net.Conn) { socket.Write([]byte{255, 255, 255, 255}) },
			"not a Thrift frame length", false},
	}
	for name, each := range answers {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			dialer := dialer{timeout: 10 * time.Second}
			connection, err := dialer.open(ctx, serverThat(t, each.serve), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer connection.close()
			arguments := &consumer.ConsumerServicePullArgs{Request: &consumer.PullRequest{}}
			var answer consumer.ConsumerServicePullResult
			err = connection.call(ctx, "pull", arguments, &answer, 150*time.Millisecond)
			if err == nil || !strings.Contains(err.Error(), each.want) || broke(err) != each.broke {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	to := serverThat(t, func(socket net.Conn) { io.Copy(io.Discard, socket) })
	dialer := dialer{timeout: 10 * time.Second}
	connection, err := dialer.open(context.Background(), to, 0)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	arguments := &consumer.ConsumerServicePullArgs{Request: &consumer.PullRequest{}}
	var answer consumer.ConsumerServicePullResult
	err = connection.call(ctx, "pull", arguments, &answer, time.Hour)
	if !errors.Is(err, cause) || !connection.closed {
		t.Errorf("got %v, closed %t", err, connection.closed)
	}
}

// ---- the plain calls -------------------------------------------------------------------------

// The proxy would lease messages to a call that has ended.
func TestACallWhoseContextHasEndedIsNotSent(t *testing.T) {
	p := startProxy(t)
	puller, err := NewPuller(p.address, "g")
	if err != nil {
		t.Fatal(err)
	}
	defer puller.Close()
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := puller.Pull(ctx, 1, 0); err != nil { // connects
		t.Fatal(err)
	}
	cancel()
	if _, err := puller.Pull(ctx, 1, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := puller.Pull(context.Background(), 1, 0); err != nil {
		t.Error(err)
	}
	if len(p.pulls) != 2 {
		t.Errorf("%d pulls were sent", len(p.pulls))
	}
}

func TestOptionsDoNotChangeWithTheCallersValues(t *testing.T) {
	names := []string{"orders"}
	config := &tls.Config{ServerName: "proxy"}
	topics, secure := WithTopics(names...), WithTLS(config)
	names[0], config.ServerName = "payments", "another"
	c, err := NewConsumer(context.Background(), "a", "g", topics, secure)
	if err != nil {
		t.Fatal(err)
	}
	if c.settings.topics[0] != "orders" || c.settings.tls.ServerName != "proxy" {
		t.Errorf("got %v, %s", c.settings.topics, c.settings.tls.ServerName)
	}
}

func TestErrorsOfBadBodiesNameTheMessage(t *testing.T) {
	m := &Message{Topic: "orders", Queue: "broker-a_0#1", Offset: 7, Attempt: 2, Body: []byte("\xff")}
	err := m.JSON(new(any))
	if err == nil || !strings.Contains(err.Error(), "orders/broker-a_0#1 at offset 7 (attempt 2)") {
		t.Errorf("got %v", err)
	}
}
