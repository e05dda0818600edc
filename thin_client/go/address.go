package orderlane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

const defaultPort = "9713"

// address is the host and port of one proxy, or a name that resolves to several.
type address struct{ host, port string }

func (a address) String() string { return net.JoinHostPort(a.host, a.port) }

// parseAddress reads host:port, host (port 9713) or [IPv6]:port.
func parseAddress(text string) (address, error) {
	host, port := strings.TrimSpace(text), defaultPort
	bracketed := strings.HasPrefix(host, "[")
	if bracketed && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	} else if strings.Contains(host, ":") {
		var err error
		if host, port, err = net.SplitHostPort(host); err != nil {
			host = ""
		}
	}
	number, err := strconv.ParseUint(port, 10, 16)
	good := err == nil && number > 0 && port[0] != '+'
	good = good && host != "" && !strings.ContainsAny(host, " \t\n[]")
	if bracketed {
		_, err := netip.ParseAddr(host)
		good = good && err == nil && strings.Contains(host, ":")
	} else {
		good = good && !strings.Contains(host, ":")
	}
	if !good {
		return address{}, fmt.Errorf(
			"%q is not a proxy address: expected host:port, for example proxy:9713", text)
	}
	return address{host, port}, nil
}

// parseAddresses reads one address, or several separated by commas. The first is tried first; when
// it fails, the next.
func parseAddresses(servers string) ([]address, error) {
	var found []address
	for _, text := range strings.Split(servers, ",") {
		one, err := parseAddress(text)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

// dialer makes connections. A name is resolved for each connection, and each of its addresses is
// tried in turn, starting at a rotating position, so that a proxy that accepts connections but does
// not answer is not the only one tried.
type dialer struct {
	tls     *tls.Config // nil: none
	timeout time.Duration
}

func (d *dialer) open(ctx context.Context, to address, turn int) (*connection, error) {
	dialing, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	socket, err := d.dial(dialing, to, turn)
	if err != nil {
		text := "no connection to " + to.String()
		if ctx.Err() == nil && dialing.Err() != nil {
			text += fmt.Sprintf(" within %v", d.timeout)
		}
		return nil, &ConnectionError{Err: err, text: text}
	}
	return newConnection(socket, to), nil
}

func (d *dialer) dial(ctx context.Context, to address, turn int) (net.Conn, error) {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", to.host)
	if err != nil {
		return nil, err
	}
	var failures []error
	for n := range found {
		one := found[(n+turn)%len(found)]
		socket, err := d.dialOne(ctx, to, one, len(found)-n)
		if err == nil {
			return socket, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// dialOne takes at most an equal share of the remaining time for each address left.
func (d *dialer) dialOne(
	ctx context.Context, to address, one netip.Addr, left int,
) (net.Conn, error) {
	if deadline, limited := ctx.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	var plain net.Dialer
	socket, err := plain.DialContext(ctx, "tcp", net.JoinHostPort(one.Unmap().String(), to.port))
	if err != nil || d.tls == nil {
		return socket, err
	}
	config := d.tls.Clone()
	if config.ServerName == "" {
		config.ServerName = to.host
	}
	secure := tls.Client(socket, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		socket.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secure, nil
}
