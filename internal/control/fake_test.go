package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
)

// fakeNode runs machines in memory whose commands are Go functions.
type fakeNode struct {
	programs map[string]func(*fakeProc) int
	onStart  func(ctx context.Context, m *fakeMachine) error // may be nil
	listens  func(port int) bool                             // besides 3000; may be nil
	onAdopt  func(m *fakeMachine, state string) error        // nil: nothing can be taken over

	disks fakeDisks

	mu       sync.Mutex
	machines map[string]*fakeMachine // that run
	started  []*fakeMachine
	closed   bool
	swept    int
}

func (n *fakeNode) Capacity() node.Capacity {
	return node.Capacity{VCPUs: 2, MaxVCPUs: 8, MemoryBytes: 1 << 40}
}

func (n *fakeNode) Keep(image.Image, int, int64, int64) {}

func (n *fakeNode) Start(ctx context.Context, spec node.Spec) (node.Machine, error) {
	m := &fakeMachine{n: n, spec: spec, policy: spec.Policy, net: egress.NewJudge(egress.Options{}), done: make(chan struct{}), procs: map[string]*fakeProc{},
		files: map[string]string{}, dirs: map[string]bool{"/": true, "/vercel": true, spec.Image.Config.WorkingDir: true, "/tmp": true}}
	if err := n.loadDisk(m); err != nil {
		return nil, err
	}
	if n.onStart != nil {
		if err := n.onStart(ctx, m); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machines[spec.ID] = m
	n.started = append(n.started, m)
	return m, nil
}

// Adopt gives a session a machine on which onAdopt has what ran.
func (n *fakeNode) Adopt(ctx context.Context, spec node.Spec, state json.RawMessage) (node.Machine, error) {
	if n.onAdopt == nil {
		return nil, errors.New("its machine has ended")
	}
	m, err := n.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := n.onAdopt(m.(*fakeMachine), string(state)); err != nil {
		return nil, errors.Join(err, m.Stop(ctx))
	}
	return m, nil
}

func (n *fakeNode) Leave(context.Context) error { return nil }

func (n *fakeNode) Sweep(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.swept++
	return nil
}

func (n *fakeNode) Status() node.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return node.Status{Driver: "fake", Running: len(n.machines)}
}

func (n *fakeNode) Close(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if len(n.machines) > 0 {
		return fmt.Errorf("%d machines are left", len(n.machines))
	}
	return nil
}

// last is the machine that was started last.
func (n *fakeNode) last() *fakeMachine {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.started[len(n.started)-1]
}

func (n *fakeNode) running() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.machines)
}

type fakeMachine struct {
	n         *fakeNode
	net       *egress.Judge
	spec      node.Spec
	done      chan struct{}
	onStop    func(ctx context.Context) // Stop calls it first where not nil
	startErr  func(guest.Command) error
	attachErr func() error    // asked before every Attach
	signalErr func() error    // asked before every Signal
	onSave    func() error    // asked before every SaveDisk
	onSaved   func(node.Save) // told of every SaveDisk where not nil

	mu      sync.Mutex
	err     error
	policy  egress.Policy
	procs   map[string]*fakeProc
	files   map[string]string
	dirs    map[string]bool
	stopped int
}

func (m *fakeMachine) ID() string            { return m.spec.ID }
func (m *fakeMachine) Done() <-chan struct{} { return m.done }

// Env implements node.Machine.
func (m *fakeMachine) Env() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.policy.HasRules() {
		return nil
	}
	return map[string]string{"SSL_CERT_FILE": "/bundle", "PIP_CERT": "/bundle"}
}

func (m *fakeMachine) State() json.RawMessage { return json.RawMessage(`"` + m.spec.ID + `"`) }

func (m *fakeMachine) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// die ends the machine as if by itself.
func (m *fakeMachine) die(err error) {
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return
	}
	m.err = err
	procs := slices.Collect(maps.Values(m.procs))
	m.mu.Unlock()
	for _, p := range procs {
		p.freeze()
		p.signal(sigKill)
	}
	m.n.mu.Lock()
	delete(m.n.machines, m.spec.ID)
	m.n.mu.Unlock()
	m.net.Log().Close()
	close(m.done)
}

func (m *fakeMachine) Stop(ctx context.Context) error {
	if m.onStop != nil {
		m.onStop(ctx)
	}
	m.mu.Lock()
	m.stopped++
	m.mu.Unlock()
	m.die(driver.ErrStopped)
	return nil
}

func (m *fakeMachine) proc(id string) (*fakeProc, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, driver.ErrStopped
	}
	p := m.procs[id]
	if p == nil {
		return nil, guest.ErrNoCommand
	}
	return p, nil
}

func (m *fakeMachine) StartCommand(_ context.Context, c guest.Command) error {
	if m.startErr != nil {
		if err := m.startErr(c); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return driver.ErrStopped
	}
	if m.procs[c.ID] != nil {
		return nil
	}
	if !m.dirs[c.Dir] {
		return guest.ErrNoDir
	}
	p := &fakeProc{m: m, Command: c, killed: make(chan struct{}), changed: make(chan struct{})}
	p.in, p.stdin = io.Pipe()
	m.procs[c.ID] = p
	run := m.n.programs[c.Argv[0]]
	if run == nil {
		run = func(p *fakeProc) int {
			fmt.Fprintf(p.stderr(), "%s: not found\n", c.Argv[0])
			return 127
		}
	}
	go func() { p.exit(run(p)) }()
	return nil
}

func (m *fakeMachine) Attach(ctx context.Context, id string, cursor int64, sink func(int64, []byte) error) error {
	if m.attachErr != nil {
		if err := m.attachErr(); err != nil {
			return err
		}
	}
	p, err := m.proc(id)
	if err != nil {
		return err
	}
	for {
		p.mu.Lock()
		b, changed, over := p.log[cursor:], p.changed, p.over
		p.mu.Unlock()
		if len(b) == 0 && over {
			return nil
		}
		if len(b) == 0 {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return ctx.Err()
			case <-m.done:
				return driver.ErrStopped
			}
		}
		b = b[:min(len(b), 32<<10)]
		if err := sink(cursor, b); err != nil {
			return err
		}
		cursor += int64(len(b))
	}
}

func (m *fakeMachine) Signal(_ context.Context, id string, sig int, tree bool) error {
	if m.signalErr != nil {
		if err := m.signalErr(); err != nil {
			return err
		}
	}
	p, err := m.proc(id)
	if err != nil {
		return err
	}
	return p.signalTree(sig, tree)
}

func (m *fakeMachine) WriteStdin(_ context.Context, id string, b []byte) error {
	p, err := m.proc(id)
	if err != nil {
		return err
	}
	if _, err := p.stdin.Write(b); err != nil {
		return guest.ErrFinished
	}
	return nil
}

func (m *fakeMachine) CloseStdin(_ context.Context, id string) error {
	p, err := m.proc(id)
	if err != nil {
		return err
	}
	return p.stdin.Close()
}

func (m *fakeMachine) Resize(_ context.Context, id string, size guest.Winsize) error {
	p, err := m.proc(id)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout(), "size %d %d\n", size.Rows, size.Cols)
	return nil
}

func (m *fakeMachine) ReadFile(_ context.Context, path string) (io.ReadCloser, guest.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, guest.FileInfo{}, driver.ErrStopped
	}
	if m.dirs[path] {
		return nil, guest.FileInfo{}, &fs.PathError{Op: "read", Path: path, Err: guest.ErrNotRegular}
	}
	text, ok := m.files[path]
	if !ok {
		return nil, guest.FileInfo{}, &fs.PathError{Op: "read", Path: path, Err: syscall.ENOENT}
	}
	return io.NopCloser(strings.NewReader(text)), guest.FileInfo{Size: int64(len(text))}, nil
}

func (m *fakeMachine) Stat(context.Context, string) (guest.FileInfo, error) {
	return guest.FileInfo{}, errors.ErrUnsupported
}

func (m *fakeMachine) Mkdir(_ context.Context, path string, _ guest.User) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent := path[:max(1, strings.LastIndexByte(path, '/'))]
	switch {
	case m.err != nil:
		return driver.ErrStopped
	case m.dirs[path]:
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.EEXIST}
	case !m.dirs[parent]:
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOENT}
	}
	m.dirs[path] = true
	return nil
}

func (m *fakeMachine) WriteTar(_ context.Context, dir string, _ guest.User, r io.Reader, verify func() error) error {
	files, err := readTar(dir, r)
	if err == nil {
		err = verify()
	}
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return driver.ErrStopped
	}
	for path := range files {
		if m.dirs[path] {
			return &fs.PathError{Op: "rename", Path: path, Err: syscall.EISDIR}
		}
	}
	maps.Copy(m.files, files)
	return nil
}

func (m *fakeMachine) Dial(_ context.Context, port int) (net.Conn, error) {
	if port != 3000 && (m.n.listens == nil || !m.n.listens(port)) {
		return nil, syscall.ECONNREFUSED
	}
	a, b := net.Pipe()
	go func() { b.Write([]byte("hello")); b.Close() }()
	return a, nil
}

func (m *fakeMachine) SetPolicy(_ context.Context, p egress.Policy) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return driver.ErrStopped
	}
	m.policy = p
	return nil
}

func (m *fakeMachine) Usage(context.Context) (node.Usage, error) {
	return node.Usage{Usage: driver.Usage{CPU: 70 * time.Millisecond}, IngressBytes: 11, EgressBytes: 22}, nil
}
