package control

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// command is a command that runs. Its record is final, and stored, when done
// is closed; then it is no longer among the session's.
type command struct {
	s       *session
	m       node.Machine
	id      string
	log     *commandLog
	stdin   bool
	begun   time.Time
	timer   Timer // nil without a time-out
	timeout time.Duration
	done    chan struct{}
	once    sync.Once // for the end

	mu  sync.Mutex // guards what follows
	rec store.Command
}

func (cmd *command) record() store.Command {
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	return cmd.rec
}

// startTimeout bounds the start of a command, whatever the client does: once
// it is asked for, it must be known whether it runs.
const startTimeout = 30 * time.Second

// RunCommand starts a command; it runs when the call returns. A program that
// cannot be executed is a command that ends at once with 126 or 127.
func (p *Project) RunCommand(ctx context.Context, sessionID string, req api.RunCommandRequest, idempotencyKey string) (*api.Command, error) {
	timeout, err := req.Validate(p.c.cfg.Limits)
	if err != nil {
		// What is wrong with a session comes before what is wrong with a field.
		if _, sessionErr := p.running(ctx, sessionID); sessionErr != nil {
			return nil, sessionErr
		}
		return nil, err
	}
	find := func(id string) (*api.Command, error) { return p.GetCommand(ctx, sessionID, id) }
	return once(ctx, p, "cmd "+sessionID, idempotencyKey, req, find, func(key *store.Key) (*api.Command, error) {
		s, err := p.running(ctx, sessionID)
		if err != nil {
			return nil, err
		}
		rec, err := s.runCommand(ctx, req, timeout, key)
		if err != nil {
			return nil, err
		}
		view := commandView(rec)
		return &view, nil
	})
}

func (s *session) runCommand(ctx context.Context, req api.RunCommandRequest, timeout time.Duration, key *store.Key) (store.Command, error) {
	cwd := s.rootDir()
	if req.Cwd != "" {
		cwd = resolvePath(cwd, "", req.Cwd)
	}
	cmd := &command{s: s, m: s.liveMachine(), id: api.NewID(api.CommandPrefix), stdin: req.Stdin, timeout: timeout, done: make(chan struct{})}
	cmd.begun = s.c.clock.Now()
	cmd.rec = store.Command{
		ID: cmd.id, SessionID: s.id, StartedAt: cmd.begun.UnixMilli(),
		CommandData: store.CommandData{Name: req.Command, Args: req.Args, Cwd: cwd, Timeout: timeout.Milliseconds(), Stdin: req.Stdin, LogLimit: s.c.logLimit()},
	}
	if key != nil {
		key.ResultID = cmd.id
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	if err := cmd.prepare(ctx, key); err != nil {
		return store.Command{}, err
	}
	err := cmd.start(ctx, guest.Command{
		ID: cmd.id, Argv: append([]string{req.Command}, req.Args...), Dir: cwd, Stdin: req.Stdin,
		Env:  environment(s.image.Config, cmd.m.Env(), s.env, req.Env, req.Sudo),
		User: runAs(s.image.Config, req.Sudo),
	})
	if err != nil {
		// Before anything that waits for the session's end, which waits for
		// the command.
		cmd.takeBack(ctx)
		if errors.Is(err, guest.ErrNoDir) {
			return store.Command{}, api.BadRequest("field cwd: directory %.200q does not exist in the sandbox; make it first, or leave cwd out for %s", cwd, s.rootDir())
		}
		return store.Command{}, s.machineError(ctx, cmd.m, "start command", err)
	}
	go cmd.pump()
	return cmd.record(), nil
}

// rootDir is the session's working directory.
func (s *session) rootDir() string { return s.image.Config.WorkingDir }

// prepare records the command before it starts, so that whatever runs is
// known, and adds it to those that the session's end waits for.
func (cmd *command) prepare(ctx context.Context, key *store.Key) (err error) {
	s := cmd.s
	if cmd.log, err = createLog(s.c.logPath(s.id, cmd.id), cmd.rec.LogLimit); err != nil {
		return err
	}
	if err := s.c.store.CreateCommand(ctx, cmd.rec, key); err != nil {
		cmd.dropLog()
		return err
	}
	s.mu.Lock()
	ending := s.ending
	if !ending {
		s.commands[cmd.id] = cmd
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if ending {
		cmd.dropRecord(ctx)
		return s.usable()
	}
	return nil
}

// start has the guest start c. An error, guest.ErrNoDir or one of a machine
// that has ended, means that it does not run.
func (cmd *command) start(ctx context.Context, c guest.Command) error {
	err := cmd.m.StartCommand(ctx, c)
	if err != nil && !errors.Is(err, guest.ErrNoDir) && ctx.Err() == nil {
		err = cmd.m.StartCommand(ctx, c) // the guest starts an id only once
	}
	if err == nil {
		if cmd.timeout > 0 {
			cmd.timer = cmd.s.c.clock.AfterFunc(cmd.timeout, cmd.timeUp)
		}
		return nil
	}
	if errors.Is(err, guest.ErrNoDir) || cmd.s.c.hasEnded(cmd.m, err) {
		return err
	}
	// It may run or not. Asking the client to repeat could run it twice: it
	// is a command that was killed.
	cmd.s.c.log.Error("start command", "session", cmd.s.id, "command", cmd.id, "err", err)
	cmd.kill()
	cmd.lose("glovebox: the command could not be started: the sandbox did not answer\n")
	return nil
}

// takeBack undoes prepare for a command that was not started.
func (cmd *command) takeBack(ctx context.Context) {
	s := cmd.s
	s.mu.Lock()
	delete(s.commands, cmd.id)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	cmd.dropRecord(ctx)
	s.wg.Done()
}

func (cmd *command) dropRecord(ctx context.Context) {
	if err := cmd.s.c.store.DeleteCommand(ctx, cmd.id); err != nil && !errors.Is(err, store.ErrNotFound) {
		cmd.s.c.log.Error("remove command that did not start", "command", cmd.id, "err", err)
	}
	cmd.dropLog()
}
