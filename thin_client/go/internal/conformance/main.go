// Command conformance wraps the client so that the cases of tests/conformance/clients can drive it.
// It decides nothing: its argument, its input and the message bodies contain all instructions.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	orderlane "github.com/orderlane/orderlane/thin_client/go"
)

// options are the argument, as defined by the contract of conformance programs.
type options struct {
	Mode             string
	Servers, Group   string
	Topics           []string
	Concurrency      *int
	Prefetch         *int
	MaxRun           *int   `json:"max_run"`
	ClientID         string `json:"client_id"`
	AckLingerMs      *int   `json:"ack_linger_ms"`
	RequestTimeoutMs *int   `json:"request_timeout_ms"`
	DrainTimeoutMs   *int   `json:"drain_timeout_ms"`
	Token            string
	TLS              *struct {
		CA, Cert, Key string
		ServerName    string `json:"server_name"`
	}
	Form          string
	WorkMs        []float64 `json:"work_ms"`
	Quiet         bool
	History, Node string
	ClockOffsetNs int64 `json:"clock_offset_ns"`
}

func main() {
	if len(os.Args) != 2 {
		fatal(fmt.Errorf("expected one argument, a JSON object"))
	}
	var asked options
	if err := json.Unmarshal([]byte(os.Args[1]), &asked); err != nil {
		fatal(err)
	}
	modes := map[string]func(*options) error{
		"": consume, "consume": consume, "produce": produce, "oneshot": oneshot,
	}
	mode, known := modes[asked.Mode]
	if !known {
		fatal(fmt.Errorf("no such mode: %q", asked.Mode))
	}
	if mode(&asked) != nil {
		os.Exit(1)
	}
	// Handlers that cannot be stopped end here.
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "conformance:", err)
	os.Exit(2)
}

// common returns options of all modes.
func (o *options) common() []orderlane.Option {
	var found []orderlane.Option
	if o.Token != "" {
		found = append(found, orderlane.WithToken(o.Token))
	}
	if o.TLS != nil {
		config, err := orderlane.LoadTLS(orderlane.TLSFiles{
			CA: o.TLS.CA, Cert: o.TLS.Cert, Key: o.TLS.Key, ServerName: o.TLS.ServerName,
		})
		if err != nil {
			fatal(err)
		}
		found = append(found, orderlane.WithTLS(config))
	}
	return found
}

// reader returns options of consumers and pullers.
func (o *options) reader() []orderlane.ReaderOption {
	var found []orderlane.ReaderOption
	for _, option := range o.common() {
		found = append(found, option)
	}
	if o.Topics != nil {
		found = append(found, orderlane.WithTopics(o.Topics...))
	}
	if o.ClientID != "" {
		found = append(found, orderlane.WithClientID(o.ClientID))
	}
	if o.RequestTimeoutMs != nil {
		found = append(found, orderlane.WithRequestTimeout(milliseconds(o.RequestTimeoutMs)))
	}
	return found
}

func milliseconds(number *int) time.Duration { return time.Duration(*number) * time.Millisecond }
