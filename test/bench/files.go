package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"

	"github.com/glovebox-dev/glovebox/client"
)

// smallFile is a source file's size, in bytes; largeFile what is sent up and
// down.
const (
	smallFile = 4 << 10
	largeFile = 50 << 20
)

func init() {
	small, large := &payload{name: "small.bin", size: smallFile}, &payload{name: "large.bin", size: largeFile}
	add(bench{name: "write", title: "write a file of 4 KiB", unit: "ms", rounds: times(2), open: openFiles(small, in)})
	add(bench{name: "read", title: "read a file of 4 KiB", unit: "ms", rounds: times(2), open: openFiles(small, out)})
	add(bench{name: "upload", title: "50 MiB that do not compress into a file", unit: "ms", rounds: part(4), open: openFiles(large, in)})
	add(bench{name: "download", title: "50 MiB that do not compress out of a file", unit: "ms", rounds: part(4), open: openFiles(large, out)})
}

// payload is a file's content, made when it is first needed.
type payload struct {
	name    string
	size    int
	data    []byte
	archive []byte // set by openFiles
}

func (p *payload) bytes() []byte {
	if p.data == nil {
		p.data = make([]byte, p.size)
		_, _ = rand.NewChaCha8([32]byte{}).Read(p.data) // never fails
	}
	return p.data
}

// pack makes what the server's write call takes, not compressed any further.
func (p *payload) pack() ([]byte, error) {
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.NoCompression)
	if err != nil {
		return nil, err
	}
	tw := tar.NewWriter(zip)
	if err := tw.WriteHeader(&tar.Header{Name: workDir[1:] + "/" + p.name, Mode: 0o644, Size: int64(p.size), Typeflag: tar.TypeReg}); err != nil {
		return nil, err
	}
	if _, err := tw.Write(p.bytes()); err != nil {
		return nil, err
	}
	err = errors.Join(tw.Close(), zip.Close())
	return packed.Bytes(), err
}

// check discards what read writes and fails unless it is as much as the file.
func (p *payload) check(read func(io.Writer) error) error {
	var got counter
	if err := read(&got); err != nil {
		return err
	}
	if int(got) != p.size {
		return fmt.Errorf("%s: %d bytes came, want %d", p.name, got, p.size)
	}
	return nil
}

type counter int

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// direction is one way to move a file, for each kind of contender.
type direction struct {
	client func(ctx context.Context, box *client.Sandbox, p *payload) error
	wire   func(ctx context.Context, w wire, session string, p *payload) error
	peer   func(ctx context.Context, b peerBox, p *payload) error
}

var in = direction{
	client: func(ctx context.Context, box *client.Sandbox, p *payload) error {
		return box.WriteFile(ctx, p.name, p.bytes(), 0)
	},
	wire: func(ctx context.Context, w wire, session string, p *payload) error {
		header := http.Header{"Content-Type": {"application/gzip"}, "X-Cwd": {"/"}}
		return w.do(ctx, http.MethodPost, sessionPath(session, "/fs/write"), header, p.archive, io.Discard)
	},
	peer: func(ctx context.Context, b peerBox, p *payload) error {
		return b.exec(ctx, command{argv: []string{"sh", "-c", "cat > " + p.name}, stdin: p.bytes()})
	},
}

var out = direction{
	client: func(ctx context.Context, box *client.Sandbox, p *payload) error {
		file, err := box.ReadFile(ctx, p.name)
		if err != nil {
			return err
		}
		defer file.Close()
		return p.check(func(w io.Writer) error {
			_, err := io.Copy(w, file)
			return err
		})
	},
	wire: func(ctx context.Context, w wire, session string, p *payload) error {
		body := []byte(`{"path":"` + p.name + `"}`)
		return p.check(func(to io.Writer) error {
			return w.do(ctx, http.MethodPost, sessionPath(session, "/fs/read"), jsonHeader, body, to)
		})
	},
	peer: func(ctx context.Context, b peerBox, p *payload) error {
		return p.check(func(w io.Writer) error {
			return b.exec(ctx, command{argv: []string{"cat", p.name}, out: w})
		})
	},
}

// openFiles prepares contenders that each have the file already, so that
// either direction finds it.
func openFiles(p *payload, d direction) func(context.Context, *rig, *scope) ([]contender, error) {
	return func(ctx context.Context, r *rig, s *scope) ([]contender, error) {
		srv, err := r.server(ctx, defaultWarm)
		if err != nil {
			return nil, err
		}
		box, err := srv.sandbox(ctx, s)
		if err != nil {
			return nil, err
		}
		if err := in.client(ctx, box, p); err != nil {
			return nil, err
		}
		if p.archive, err = p.pack(); err != nil {
			return nil, err
		}
		w, session := srv.wire(s), box.Session().ID
		found := []contender{
			timed("glovebox", func(ctx context.Context) error { return d.client(ctx, box, p) }),
			timed("glovebox, HTTP alone", func(ctx context.Context) error { return d.wire(ctx, w, session, p) }),
		}
		boxes, err := openAll(ctx, r, s, false, idler...)
		if err != nil {
			return nil, err
		}
		for i, peer := range r.peers {
			if err := in.peer(ctx, boxes[i], p); err != nil {
				return nil, err
			}
			found = append(found, timed(execName(peer)+", `cat`", func(ctx context.Context) error { return d.peer(ctx, boxes[i], p) }))
		}
		return found, nil
	}
}
