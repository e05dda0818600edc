package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	orderlane "github.com/orderlane/orderlane/thin_client/go"
	"github.com/orderlane/orderlane/thin_client/go/internal/routing"
)

// eachLine reads the driver's requests until the input ends.
func eachLine[T any](do func(asked *T)) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var asked T
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fatal(err)
		}
		do(&asked)
	}
}

type outgoing struct {
	Topic, Body  string
	Key          *string
	ShardingKey  *string `json:"sharding_key"`
	ShardingPath *string `json:"sharding_path"`
	Queue        any
	Tag          *string
	Properties   map[string]string
	DelayMs      *int `json:"delay_ms"`
}

func (o *outgoing) message() orderlane.Outgoing {
	message := orderlane.Outgoing{Topic: o.Topic, Body: []byte(o.Body), Properties: o.Properties}
	if o.Key != nil {
		message.Key = *o.Key
	}
	if o.Tag != nil {
		message.Tag = *o.Tag
	}
	if o.DelayMs != nil {
		message.Delay = milliseconds(o.DelayMs)
	}
	switch queue := o.Queue.(type) {
	case float64:
		message.Route = orderlane.Queue(int(queue))
	case string:
		message.Route = orderlane.RandomQueue()
	}
	if o.ShardingPath != nil {
		message.Route = orderlane.ShardingPath(*o.ShardingPath)
	}
	if o.ShardingKey != nil {
		message.Route = orderlane.ShardingKey(*o.ShardingKey)
	}
	return message
}

func produce(asked *options) error {
	var found []orderlane.ProducerOption
	for _, option := range asked.common() {
		found = append(found, option)
	}
	producer, err := orderlane.NewProducer(asked.Servers, found...)
	if err != nil {
		fatal(err)
	}
	child, err := orderlane.NewProducer(asked.Servers, found...)
	if err != nil {
		fatal(err)
	}
	type call struct {
		Op, Key   string
		Process   string // ignored: Go cannot fork
		Messages  []outgoing
		Batch     bool
		TimeoutMs *int `json:"timeout_ms"`
	}
	eachLine(func(asked *call) {
		if asked.Op == "hash" {
			say("hash", fields{"hash": routing.KeyHash(asked.Key)})
			return
		}
		var messages []orderlane.Outgoing
		for _, each := range asked.Messages {
			messages = append(messages, each.message())
		}
		timeout := 10 * time.Second
		if asked.TimeoutMs != nil {
			timeout = milliseconds(asked.TimeoutMs)
		}
		from := producer
		if asked.Process == "child" {
			from = child
		}
		results := []fields{}
		if asked.Batch {
			results = send(from, messages, timeout)
		} else {
			for n := range messages {
				results = append(results, send(from, messages[n:n+1], timeout)...)
			}
		}
		say("sent", fields{"results": results})
	})
	err = errors.Join(producer.Close(), child.Close())
	say("stopped", fields{"error": failure(err)})
	return err
}

// send makes one call and returns the result of each message.
func send(
	producer *orderlane.Producer, messages []orderlane.Outgoing, timeout time.Duration,
) []fields {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var ids []string
	var err error
	if len(messages) == 1 {
		var id string
		if id, err = producer.Send(ctx, messages[0]); id != "" {
			ids = []string{id}
		}
	} else {
		ids, err = producer.SendBatch(ctx, messages)
	}
	failures := map[string]orderlane.SendFailure{}
	var failed *orderlane.SendError
	if errors.As(err, &failed) {
		for _, each := range failed.Failures {
			failures[each.MessageID] = each
		}
	}
	var results []fields
	for n := range messages {
		result := fields{"message_id": nil, "error": nil, "code": nil, "unknown": false}
		results = append(results, result)
		if n >= len(ids) { // invalid: not sent at all
			result["error"] = fmt.Sprint(err)
			continue
		}
		result["message_id"] = ids[n]
		if failure, is := failures[ids[n]]; is {
			result["error"], result["unknown"] = failure.Reason, failure.OutcomeUnknown
			if failure.Code != 0 {
				result["code"] = failure.Code
			}
		}
	}
	return results
}

func oneshot(asked *options) error {
	var found []orderlane.PullerOption
	for _, option := range asked.reader() {
		found = append(found, option)
	}
	puller, err := orderlane.NewPuller(asked.Servers, asked.Group, found...)
	if err != nil {
		fatal(err)
	}
	pulled := map[int64]*orderlane.Message{}
	type call struct {
		Op      string
		Max     int
		WaitMs  int `json:"wait_ms"`
		Lease   int64
		Do      string
		AfterMs *int `json:"after_ms"`
		Reason  string
		Ms      int
	}
	ctx := context.Background()
	eachLine(func(asked *call) {
		var err error
		var held bool
		switch asked.Op {
		case "pull":
			var messages []*orderlane.Message
			messages, err = puller.Pull(ctx, asked.Max, milliseconds(&asked.WaitMs))
			lines := []fields{}
			for _, message := range messages {
				pulled[message.LeaseID] = message
				lines = append(lines, describe(message))
			}
			if err == nil {
				say("pulled", fields{"messages": lines})
			}
		case "settle":
			outcome := map[string]error{
				"retry": orderlane.Retry(), "reject": orderlane.Reject(asked.Reason),
				"defer": orderlane.Defer(), "raise": errors.New(asked.Reason),
			}[asked.Do]
			if asked.Do == "retry" && asked.AfterMs != nil {
				outcome = orderlane.RetryAfter(milliseconds(asked.AfterMs))
			}
			if held, err = puller.Settle(ctx, pulled[asked.Lease], outcome); err == nil {
				say("settled", fields{"held": held})
			}
		case "extend":
			held, err = puller.Extend(ctx, pulled[asked.Lease], milliseconds(&asked.Ms))
			if err == nil {
				say("extended", fields{"held": held})
			}
		}
		if err != nil {
			sayError(err)
		}
	})
	err = puller.Close()
	say("stopped", fields{"error": failure(err)})
	return err
}
