package netstack

import (
	"encoding/binary"
	"errors"
)

// maxHello bounds how much of a connection is held back while its
// ClientHello is incomplete. Real ones stay below 5 KB.
const maxHello = 64 << 10

type helloState int

const (
	helloPartial helloState = iota // more bytes are needed
	helloNotTLS
	helloTLS // complete, or TLS that cannot be read: then no name
)

// readHello finds the server name in the first bytes of a connection. It
// joins the records that a ClientHello may be split into.
func readHello(b []byte) (server string, state helloState) {
	const handshake, clientHello = 22, 1
	var msg []byte
	for first := true; ; first = false {
		if len(b) == 0 {
			return "", helloPartial
		}
		if b[0] != handshake || len(b) > 1 && b[1] != 3 {
			if first {
				return "", helloNotTLS
			}
			return "", helloTLS
		}
		if len(b) < 5 {
			return "", helloPartial
		}
		n := int(binary.BigEndian.Uint16(b[3:]))
		if n == 0 || n > 1<<14 {
			return "", helloTLS
		}
		part := b[5:min(len(b), 5+n)]
		msg = append(msg, part...)
		if len(msg) > 0 && msg[0] != clientHello {
			return "", helloTLS
		}
		if len(msg) >= 4 {
			want := 4 + (int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3]))
			if len(msg) >= want {
				server, _ = helloServerName(msg[4:want])
				return server, helloTLS
			}
			if want > maxHello {
				return "", helloTLS
			}
		}
		if len(part) < n {
			return "", helloPartial
		}
		b = b[5+n:]
	}
}

var errHello = errors.New("malformed ClientHello")

// cursor cuts pieces off a message.
type cursor []byte

func (c *cursor) take(n int) (cursor, error) {
	if n > len(*c) {
		return nil, errHello
	}
	p := (*c)[:n]
	*c = (*c)[n:]
	return p, nil
}

// sized takes a piece whose length is in the size bytes before it.
func (c *cursor) sized(size int) (cursor, error) {
	l, err := c.take(size)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, x := range l {
		n = n<<8 | int(x)
	}
	return c.take(n)
}

// helloServerName reads the body of a ClientHello (RFC 8446, 4.1.2). A
// message with two names or anything odd has none.
func helloServerName(body cursor) (string, error) {
	if _, err := body.take(2 + 32); err != nil { // version, random
		return "", err
	}
	for _, size := range []int{1, 2, 1} { // session id, ciphers, compression
		if _, err := body.sized(size); err != nil {
			return "", err
		}
	}
	exts, err := body.sized(2)
	if err != nil {
		return "", err
	}
	name, seen := "", false
	for len(exts) > 0 {
		typ, err := exts.take(2)
		if err != nil {
			return "", err
		}
		ext, err := exts.sized(2)
		if err != nil {
			return "", err
		}
		if binary.BigEndian.Uint16(typ) != 0 {
			continue
		}
		if seen {
			return "", errHello
		}
		seen = true
		if name, err = serverNameExtension(ext); err != nil {
			return "", err
		}
	}
	return name, nil
}

// serverNameExtension reads RFC 6066, 3: exactly one host name.
func serverNameExtension(ext cursor) (string, error) {
	list, err := ext.sized(2)
	if err != nil || len(ext) != 0 {
		return "", errHello
	}
	kind, err := list.take(1)
	if err != nil || kind[0] != 0 {
		return "", errHello
	}
	host, err := list.sized(2)
	if err != nil || len(list) != 0 {
		return "", errHello
	}
	return string(host), nil
}
