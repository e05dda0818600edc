package orderlane

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"
)

func TestAPullerPullsExtendsAndSettles(t *testing.T) {
	p := startProxy(t)
	p.put("a", "b")
	p.notHeld[2] = true
	ctx := context.Background()
	puller, err := NewPuller(p.address, "g", WithClientID("c"))
	if err != nil {
		t.Fatal(err)
	}
	messages, err := puller.Pull(ctx, 5, time.Second)
	if err != nil || len(messages) != 2 {
		t.Fatalf("got %v, %v", messages, err)
	}
	before := messages[0].Deadline()
	if held, err := puller.Extend(ctx, messages[0], time.Minute); !held || err != nil {
		t.Errorf("extend: %t, %v", held, err)
	}
	if longer := messages[0].Deadline().Sub(before); longer < 50*time.Second {
		t.Errorf("extended by %v", longer)
	}
	if held, err := puller.Extend(ctx, messages[1], time.Second); held || err != nil {
		t.Errorf("extend of a lost lease: %t, %v", held, err)
	}
	if held, err := puller.Settle(ctx, messages[0], RetryAfter(time.Second)); !held || err != nil {
		t.Errorf("settle: %t, %v", held, err)
	}
	p.untilVerdict(1, "retry after 1000 ms")
	if held, err := puller.Settle(ctx, messages[1], nil); held || err != nil {
		t.Errorf("settle of a lost lease: %t, %v", held, err)
	}
	if !messages[1].LeaseLost() || messages[0].LeaseLost() {
		t.Error("wrong LeaseLost")
	}
	puller.Close()
	if _, err := puller.Pull(ctx, 1, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestAPullerReconnectsAfterAnError(t *testing.T) {
	p := startProxy(t)
	p.script("pull", hangUp)
	p.put("a")
	puller, err := NewPuller("127.0.0.1:1,"+p.address, "g")
	if err != nil {
		t.Fatal(err)
	}
	defer puller.Close()
	ctx := context.Background()
	var lost *ConnectionError
	if _, err := puller.Pull(ctx, 1, 0); !errors.As(err, &lost) || !lost.Broke {
		t.Errorf("got %v", err)
	}
	if messages, err := puller.Pull(ctx, 1, time.Second); err != nil || len(messages) != 1 {
		t.Errorf("got %v, %v", messages, err)
	}
}

// waiting returns a puller with a pull that its proxy does not answer, and the pull's error.
func waiting(t *testing.T) (*Puller, chan error) {
	t.Helper()
	p := startProxy(t)
	begun, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(over) })
	p.script("pull", func(thrift.TStruct) thrift.TStruct {
		close(begun)
		<-over
		return nil
	})
	puller, err := NewPuller(p.address, "g")
	if err != nil {
		t.Fatal(err)
	}
	pulled := make(chan error, 1)
	go func() {
		_, err := puller.Pull(context.Background(), 1, time.Hour)
		pulled <- err
	}()
	<-begun
	return puller, pulled
}

func TestCloseEndsAPull(t *testing.T) {
	puller, pulled := waiting(t)
	puller.Close()
	if err := <-pulled; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	puller.Close() // a second time has no effect
}

func TestACallOfAPullerDoesNotWaitBeyondItsContext(t *testing.T) {
	puller, pulled := waiting(t)
	defer func() { <-pulled }()
	defer puller.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("enough")
	time.AfterFunc(time.Millisecond, func() { cancel(cause) })
	_, err := puller.Pull(ctx, 1, 0)
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "pull was not sent") {
		t.Errorf("got %v", err)
	}
}

func TestAPullerRefusesInvalidArguments(t *testing.T) {
	p := startProxy(t)
	p.put("a")
	ctx := context.Background()
	puller, err := NewPuller(p.address, "g")
	if err != nil {
		t.Fatal(err)
	}
	defer puller.Close()
	for _, most := range []int{0, -1, math.MaxInt32 + 1} {
		if _, err := puller.Pull(ctx, most, 0); err == nil ||
			!strings.Contains(err.Error(), "expected 1 to 1000000 messages") {
			t.Errorf("most %d: got %v", most, err)
		}
	}
	if _, err := puller.Pull(ctx, 1, -time.Second); err == nil ||
		!strings.Contains(err.Error(), "wait is -1s") {
		t.Errorf("a negative wait: got %v", err)
	}
	if _, err := puller.Settle(ctx, &Message{}, nil); err == nil ||
		!strings.Contains(err.Error(), "expected one that Pull returned") {
		t.Errorf("a message of another origin: got %v", err)
	}
	if len(p.pulls) > 0 {
		t.Errorf("%d requests were sent", len(p.pulls))
	}
	messages, err := puller.Pull(ctx, 1, time.Second)
	if err != nil || len(messages) != 1 {
		t.Fatalf("got %v, %v", messages, err)
	}
	for _, length := range []time.Duration{0, -time.Second, time.Microsecond} {
		if _, err := puller.Extend(ctx, messages[0], length); err == nil ||
			!strings.Contains(err.Error(), "expected at least 1ms") {
			t.Errorf("length %v: got %v", length, err)
		}
	}
	if held, err := puller.Extend(ctx, messages[0], math.MaxInt64); !held || err != nil ||
		time.Until(messages[0].Deadline()) < time.Hour {
		t.Errorf("an endless length: %t, %v, until %v", held, err, messages[0].Deadline())
	}
}
