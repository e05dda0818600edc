package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	orderlane "github.com/orderlane/orderlane/thin_client/go"
	"github.com/orderlane/orderlane/thin_client/go/internal/clock"
)

// fields are the contents of one line.
type fields map[string]any

var oneAtATime sync.Mutex

// say writes one line to the driver.
func say(event string, line fields) {
	line["e"] = event
	text, err := json.Marshal(line)
	if err != nil {
		fatal(err)
	}
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

// failure returns an error as lines show it; nil for none.
func failure(err error) any {
	if err == nil {
		return nil
	}
	line := fields{
		"kind": "protocol", "code": nil, "retriable": orderlane.Retriable(err), "text": err.Error(),
	}
	var connection *orderlane.ConnectionError
	var refused *orderlane.RefusedError
	var fault *orderlane.FaultError
	switch {
	case errors.As(err, &connection):
		line["kind"] = "connection"
	case errors.As(err, &refused):
		line["kind"], line["code"] = "refused", refused.Code
	case errors.As(err, &fault):
		line["kind"] = "fault"
	}
	return line
}

func sayError(err error) { say("error", failure(err).(fields)) }

// describe returns a message as lines show it.
func describe(message *orderlane.Message) fields {
	properties := message.Properties
	if properties == nil {
		properties = map[string]string{}
	}
	line := fields{
		"topic": message.Topic, "queue": message.Queue, "offset": message.Offset,
		"lease": message.LeaseID, "key": orNull(message.Key),
		"order_key": orderText(message.OrderKey),
		"tag":       orNull(message.Tag), "properties": properties, "attempt": message.Attempt,
		"born_at_ms": nil, "message_id": orNull(message.MessageID),
		"left_ms": time.Until(message.Deadline()).Milliseconds(),
		"body":    strings.ToValidUTF8(string(message.Body), "\ufffd"),
	}
	if !message.BornAt.IsZero() {
		line["born_at_ms"] = message.BornAt.UnixMilli()
	}
	return line
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// orderText returns an order key in readable form.
func orderText(key []byte) any {
	switch {
	case key == nil:
		return nil
	case utf8.Valid(key):
		return string(key)
	}
	return "0x" + hex.EncodeToString(key)
}

// history is a file of events, in the documented format of histories; nil: no history.
type history struct {
	mu     sync.Mutex
	file   *os.File
	node   string
	offset time.Duration
}

func openHistory(asked *options) *history {
	if asked.History == "" {
		return nil
	}
	file, err := os.OpenFile(asked.History, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		fatal(err)
	}
	h := &history{file: file, node: asked.Node, offset: time.Duration(asked.ClockOffsetNs)}
	h.endTornLine()
	h.write("start", fields{"pid": os.Getpid(), "parts": []string{"consumer"}})
	return h
}

// endTornLine ends the incomplete line of a killed process, so that readers skip it.
func (h *history) endTornLine() {
	status, err := h.file.Stat()
	if err != nil || status.Size() == 0 {
		return
	}
	last := make([]byte, 1)
	if _, err := h.file.ReadAt(last, status.Size()-1); err == nil && last[0] != '\n' {
		h.file.Write([]byte{'\n'})
	}
}

func (h *history) write(event string, line fields) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	line["e"], line["node"] = event, h.node
	line["t_ns"], line["wall_ms"] = int64(clock.Now()+h.offset), time.Now().UnixMilli()
	text, err := json.Marshal(line)
	if err != nil {
		fatal(err)
	}
	if _, err := h.file.Write(append(text, '\n')); err != nil {
		fatal(err)
	}
}

// handling writes the start or end of handlers.
func (h *history) handling(
	event string, message *orderlane.Message, asked *options, outcome string,
) {
	if h == nil {
		return
	}
	queue, _, _ := strings.Cut(message.Queue, "#")
	line := fields{
		"group": asked.Group, "consumer": asked.ClientID, "topic": message.Topic, "queue": queue,
		"offset": message.Offset, "msg": orNull(message.MessageID),
		"order": orderText(message.OrderKey), "attempt": message.Attempt, "lease": message.LeaseID,
	}
	if outcome != "" {
		line["outcome"] = outcome
	}
	h.write(event, line)
}
