package orderlane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/orderlane/orderlane/thin_client/go/internal/gen/consumer"
)

const (
	// maxFrameBytes limits an answer to 32 MiB: the maximum of the proxy's
	// limits.max_answer_bytes, plus one message inflated to 16 MiB.
	maxFrameBytes = 33_554_432
	// keptFrameBytes is the largest buffer a connection keeps between calls.
	keptFrameBytes = 1 << 20
	readBytes      = 1 << 16
)

// connection is one connection to a proxy, for one call at a time. Close it after any error other
// than a RefusedError.
type connection struct {
	to       address
	address  string // the same, as text
	socket   net.Conn
	reader   *bufio.Reader
	out      *thrift.TMemoryBuffer
	frame    []byte
	sequence int32
	closed   bool
}

func newConnection(socket net.Conn, to address) *connection {
	return &connection{
		to:      to,
		address: to.String(),
		socket:  socket,
		reader:  bufio.NewReaderSize(socket, readBytes),
		out:     thrift.NewTMemoryBuffer(),
		// A random start, so that answers mixed up between two connections are detected.
		sequence: rand.Int32(),
	}
}

func (c *connection) close() {
	c.closed = true
	c.socket.Close()
}

// result is a generated struct that is filled from an answer.
type result interface {
	thrift.TStruct
	IsSetSuccess() bool
}

// call sends arguments and waits for the answer, at most for timeout or until ctx ends.
func (c *connection) call(
	ctx context.Context, method string, arguments thrift.TStruct, answer result,
	timeout time.Duration,
) error {
	if ctx.Err() != nil { // otherwise the request might be sent before the end is noticed
		return ended(ctx, fmt.Sprintf("%s to %s was not sent", method, c.address))
	}
	c.sequence = (c.sequence + 1) & math.MaxInt32
	if err := c.socket.SetDeadline(time.Now().Add(timeout)); err != nil {
		return c.lost(ctx, method, timeout, err)
	}
	release := context.AfterFunc(ctx, func() { _ = c.socket.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !release() {
			c.close() // its deadline may be set at any later moment
		}
	}()
	frame, err := c.exchange(ctx, method, arguments)
	var protocol *ProtocolError
	if errors.As(err, &protocol) {
		return err
	}
	if err != nil {
		return c.lost(ctx, method, timeout, err)
	}
	return decode(frame, method, c.sequence, answer, c.address)
}

// lost explains to the caller why there is no answer.
func (c *connection) lost(
	ctx context.Context, method string, timeout time.Duration, err error,
) error {
	switch {
	case ctx.Err() != nil:
		return ended(ctx, fmt.Sprintf("%s to %s was cancelled", method, c.address))
	case errors.Is(err, os.ErrDeadlineExceeded):
		text := fmt.Sprintf("%s did not answer %s within %v", c.address, method, timeout)
		return &ConnectionError{text: text}
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		text := fmt.Sprintf("%s closed the connection during %s", c.address, method)
		return &ConnectionError{Broke: true, text: text}
	}
	text := fmt.Sprintf("the connection to %s broke during %s", c.address, method)
	return &ConnectionError{Broke: true, Err: err, text: text}
}

// exchange sends a call and reads the answer's frame, which is valid until the next exchange.
func (c *connection) exchange(
	ctx context.Context, method string, arguments thrift.TStruct,
) ([]byte, error) {
	if err := encode(c.out, method, c.sequence, arguments); err != nil {
		return nil, &ProtocolError{Err: err, text: method + " cannot be encoded"}
	}
	if _, err := c.socket.Write(c.out.Bytes()); err != nil {
		return nil, err
	}
	if c.out.Cap() > keptFrameBytes {
		c.out = thrift.NewTMemoryBuffer()
	}
	var head [4]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
		return nil, err
	}
	length := int32(binary.BigEndian.Uint32(head[:]))
	if length <= 0 || length > maxFrameBytes {
		return nil, &ProtocolError{text: fmt.Sprintf(
			"the answer of %s begins with %q, which is not a Thrift frame length: is this the"+
				" Thrift port of an orderlane proxy?", c.address, head[:])}
	}
	frame := c.frame
	if int(length) > cap(frame) {
		frame = make([]byte, length)
		if length <= keptFrameBytes {
			c.frame = frame
		}
	}
	_, err := io.ReadFull(c.reader, frame[:length])
	return frame[:length], err
}

// encode fills out with the frame of a call of method.
func encode(
	out *thrift.TMemoryBuffer, method string, sequence int32, arguments thrift.TStruct,
) error {
	ctx := context.Background() // unused by the codec: out is memory
	out.Reset()
	out.Write(make([]byte, 4)) // the length
	protocol := thrift.NewTCompactProtocolConf(out, nil)
	if err := protocol.WriteMessageBegin(ctx, method, thrift.CALL, sequence); err != nil {
		return err
	}
	if err := arguments.Write(ctx, protocol); err != nil {
		return err
	}
	if err := protocol.WriteMessageEnd(ctx); err != nil {
		return err
	}
	binary.BigEndian.PutUint32(out.Bytes(), uint32(out.Len()-4))
	return nil
}

// decode fills answer from a frame.
func decode(frame []byte, method string, sequence int32, answer result, sender string) error {
	name, kind, answered, coded, fault, err := read(frame, answer)
	switch {
	case err != nil:
		text := fmt.Sprintf("the answer of %s to %s cannot be decoded", sender, method)
		return &ProtocolError{Err: err, text: text}
	case kind == thrift.EXCEPTION:
		text := fmt.Sprintf("%s answered %s with a fault: %s", sender, method, fault)
		return &FaultError{Internal: fault.TypeId() == thrift.INTERNAL_ERROR, text: text}
	case kind != thrift.REPLY || name != method || answered != sequence:
		return &ProtocolError{text: fmt.Sprintf(
			"%s number %d was answered by message type %d for %q number %d",
			method, sequence, kind, name, answered)}
	}
	if refusing, can := answer.(interface {
		GetError() *consumer.PullException
	}); can {
		if refused := refusing.GetError(); refused != nil {
			text := fmt.Sprintf("%s refused %s: %s", sender, method, refused.Message)
			return &RefusedError{Code: int(refused.Code), text: text}
		}
	}
	if !answer.IsSetSuccess() {
		return &ProtocolError{text: fmt.Sprintf("%s sent an empty answer to %s", sender, method)}
	}
	if strings.HasPrefix(method, "send") && !coded { // it would read as 0, which means stored
		return &ProtocolError{text: fmt.Sprintf("%s answered %s without a code", sender, method)}
	}
	return nil
}

func read(frame []byte, answer thrift.TStruct) (
	name string, kind thrift.TMessageType, sequence int32, coded bool,
	fault thrift.TApplicationException, err error,
) {
	ctx := context.Background()
	buffer := &thrift.TMemoryBuffer{Buffer: bytes.NewBuffer(frame)}
	// An element takes at least one byte, so no length may exceed the frame's.
	limits := &thrift.TConfiguration{MaxMessageSize: int32(len(frame))}
	protocol := &shallow{TProtocol: thrift.NewTCompactProtocolConf(buffer, limits)}
	if name, kind, sequence, err = protocol.ReadMessageBegin(ctx); err != nil {
		return
	}
	if kind == thrift.EXCEPTION {
		fault = thrift.NewTApplicationException(thrift.UNKNOWN_APPLICATION_EXCEPTION, "")
		err = fault.Read(ctx, protocol)
		return
	}
	if err = answer.Read(ctx, protocol); protocol.depth > maxDepth {
		err = errTooDeep // instead of the path to that depth
	}
	coded = protocol.coded
	return
}

// maxDepth limits nested structs: the generated readers have no limit and would exhaust the stack.
const maxDepth = 64

var errTooDeep = errors.New("its structs are nested too deep")

type shallow struct {
	thrift.TProtocol
	depth int
	coded bool // the answer has a first field of type i32: the code of a Result
}

func (s *shallow) ReadFieldBegin(ctx context.Context) (string, thrift.TType, int16, error) {
	name, kind, id, err := s.TProtocol.ReadFieldBegin(ctx)
	s.coded = s.coded || s.depth == 2 && id == 1 && kind == thrift.I32
	return name, kind, id, err
}

func (s *shallow) ReadStructBegin(ctx context.Context) (string, error) {
	if s.depth++; s.depth > maxDepth {
		return "", errTooDeep
	}
	return s.TProtocol.ReadStructBegin(ctx)
}

func (s *shallow) ReadStructEnd(ctx context.Context) error {
	s.depth--
	return s.TProtocol.ReadStructEnd(ctx)
}
