package control

import (
	"context"
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// saveTimeout bounds the saving of a disk, which may be as large as the
// server's limit of one.
const saveTimeout = 15 * time.Minute

// keep saves the disk of a machine that is about to end, where the disk is to
// last: because the sandbox is persistent, or because somebody asked for a
// snapshot. Drives last in any case. It returns nil where there is nothing to
// record. On an error nothing is kept, and the machine may be alive or not.
func (s *session) keep(m node.Machine, ask *snapshotAsk) (*store.Kept, []store.DriveState, error) {
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	sb, err := s.c.store.SandboxByID(ctx, s.sandboxID)
	if err != nil {
		return nil, nil, fmt.Errorf("find its sandbox: %w", err)
	}
	s.mu.Lock()
	discard := s.discard
	s.mu.Unlock()
	drivesOnly := ask == nil && (discard || !sb.Persistent)
	if drivesOnly && !s.writesDrives() {
		return nil, nil, nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	saved, err := m.SaveDisk(ctx, node.Save{DrivesOnly: drivesOnly, UseReserve: ask == nil})
	if err != nil {
		return nil, nil, err
	}
	states := s.states(saved)
	if drivesOnly {
		return nil, states, nil
	}
	layers := recorded(s.layers)
	if saved.Layer != nil {
		layers = append(layers, recorded([]image.Layer{*saved.Layer})...)
	} else if source := s.record().SourceSnapshotID; ask == nil && s.c.stillThere(ctx, s.project, source) {
		s.setKept(source)
		return nil, states, nil
	}
	sn := s.c.newSnapshot(s.record(), sb, store.MadeAutomatically, layers)
	kept := &store.Kept{Retention: retention(sb)}
	if ask != nil {
		sn.Method, kept.Key = store.MadeManually, ask.key
		setExpiration(&sn, ask.expiration)
		if kept.Key != nil {
			kept.Key.ResultID = sn.ID
		}
	}
	kept.Snapshot = sn
	s.setKept(sn.ID)
	return kept, states, nil
}

func (s *session) setKept(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.KeptSnapshotID = id
	if s.rec.SnapshottedAt == 0 {
		s.rec.SnapshottedAt = s.c.now()
	}
}

// stillThere tells whether a snapshot can be started from.
func (c *Control) stillThere(ctx context.Context, project, id string) bool {
	if id == "" {
		return false
	}
	sn, err := c.store.Snapshot(ctx, project, id)
	return err == nil && sn.Status == api.SnapshotCreated
}

// newSnapshot is one of the disk that session se of sandbox sb has written.
func (c *Control) newSnapshot(se store.Session, sb store.Sandbox, method string, layers []store.SnapshotLayer) store.Snapshot {
	now := c.now()
	sn := store.Snapshot{
		ID: api.NewID(api.SnapshotPrefix), Project: sb.Project, SandboxID: sb.ID, SandboxName: sb.Name, SessionID: se.ID,
		ParentID: se.SourceSnapshotID, CreatedAt: now, UpdatedAt: now, LastUsedAt: now, Status: api.SnapshotCreated, Layers: layers,
		SnapshotData: store.SnapshotData{Method: method, Region: se.Region, Image: se.Image, Runtime: se.Runtime},
	}
	expiration := defaultExpiration(sb)
	if sb.KeepLast != nil && sb.KeepLast.Expiration != nil {
		expiration = *sb.KeepLast.Expiration
	}
	setExpiration(&sn, &expiration)
	return sn
}

// setExpiration counts from the snapshot's last use; nil leaves it.
func setExpiration(sn *store.Snapshot, expiration *int64) {
	if expiration == nil {
		return
	}
	sn.Expiration, sn.ExpiresAt = *expiration, 0
	if *expiration > 0 {
		sn.ExpiresAt = sn.LastUsedAt + *expiration
	}
}

// defaultExpiration in milliseconds of a sandbox's snapshots; 0: never.
func defaultExpiration(sb store.Sandbox) int64 {
	if sb.SnapshotExpiration != nil {
		return *sb.SnapshotExpiration
	}
	return api.DefaultSnapshotExpiration.Milliseconds()
}

func retention(sb store.Sandbox) *store.Retention {
	if sb.KeepLast == nil {
		return nil
	}
	return &store.Retention{Count: int(sb.KeepLast.Count), Delete: sb.KeepLast.DeleteEvicted, Expiration: defaultExpiration(sb)}
}

// recorded is how layers are stored.
func recorded(layers []image.Layer) []store.SnapshotLayer {
	out := make([]store.SnapshotLayer, 0, len(layers)+1)
	for _, l := range layers {
		out = append(out, store.SnapshotLayer{Digest: l.Digest, Size: l.Size - l.Holes})
	}
	return out
}

// stored is the reverse of recorded.
func stored(layers []store.SnapshotLayer) []image.Layer {
	out := make([]image.Layer, 0, len(layers))
	for _, l := range layers {
		out = append(out, image.Layer{Digest: l.Digest, Size: l.Size})
	}
	return out
}

const (
	// recordTries and recordPause: a session's end is recorded again after an
	// error of the store, such as a full disk, since a disk that was kept is
	// lost without its record.
	recordTries = 5
	recordPause = time.Second
)

// recordEnd stores the end of a session with what was kept of it, and returns
// what is kept for good.
func (s *session) recordEnd(m node.Machine, final api.SessionStatus, usage store.Usage, kept *store.Kept, states []store.DriveState) *store.Kept {
	some := kept != nil || len(states) > 0
	err := s.tryEnd(final, usage, kept, states)
	for try := 1; err != nil && some && try < recordTries; try++ {
		s.c.log.Error("record session and its disks; trying again", "session", s.id, "err", err)
		<-s.c.after(recordPause)
		err = s.tryEnd(final, usage, kept, states)
	}
	if err != nil && some {
		kept, final = nil, s.diskLost(m, err)
		err = s.tryEnd(final, usage, nil, nil)
	}
	if err != nil {
		s.c.log.Error("record session", "session", s.id, "err", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rec.Status, s.rec.StoppedAt, s.rec.Usage = final, s.c.now(), &usage
	}
	return kept
}

// tryEnd is one try. Under the lock, so that the session does not seem to be
// over while its sandbox is not.
func (s *session) tryEnd(final api.SessionStatus, usage store.Usage, kept *store.Kept, states []store.DriveState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.now()
	rec := s.rec
	rec.Status, rec.StoppedAt, rec.UpdatedAt = final, now, now
	rec.Machine, rec.Layers, rec.Drives = nil, nil, nil
	usage.DurationMs = max(0, now-rec.StartedAt)
	rec.Usage = &usage
	if err := s.c.store.EndSession(context.Background(), rec, kept, states...); err != nil {
		return err
	}
	s.rec = rec
	return nil
}
