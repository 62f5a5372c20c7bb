package sentryhook

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"strconv"
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/fsutil"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/savedtree"
)

// Freeze is the session that stops the guest's tasks and writes the trees below
// dir of each tmpfs that was mounted at mounts, as package savedtree says, to
// the files that travel with the call, in the same order. When it fails the
// guest is to be let go on. Turns count the attempts of one machine.
//
// gVisor's own way to save a file system (FSSave) writes all contents too,
// which are in the layer's file anyway, and a tar, which has no sockets, no
// times below a second and no attributes that are not text.
func Freeze(turn int64, dir string, mounts ...string) seccheck.SessionConfig {
	var calls []map[string]any
	for i, mount := range mounts {
		op := opTree
		if i == 0 {
			op = opFreeze
		}
		calls = append(calls, map[string]any{"op": op, "turn": strconv.FormatInt(turn, 10), "mount": mount, "dir": dir})
	}
	return session(calls...)
}

// Thaw is the session that lets a frozen guest go on; one that is not frozen
// is left alone. A Freeze of this turn or an earlier one that is still on its
// way is refused when it comes.
func Thaw(turn int64) seccheck.SessionConfig {
	return session(map[string]any{"op": opThaw, "turn": strconv.FormatInt(turn, 10)})
}

func turnOf(conf map[string]any) (int64, error) {
	s, _ := conf["turn"].(string)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("sentryhook: turn: %w", err)
	}
	return n, nil
}

// session makes calls of ours, one after the other until one fails.
func session(calls ...map[string]any) seccheck.SessionConfig {
	c := seccheck.SessionConfig{Name: seccheck.DefaultSessionName}
	for _, conf := range calls {
		c.Sinks = append(c.Sinks, seccheck.SinkConfig{Name: sinkName, Config: conf})
	}
	return c
}

// frozen serialises freezing and thawing: a thaw waits for the freeze that it
// belongs to, or comes before it.
var frozen struct {
	mu     sync.Mutex
	is     bool
	thawed int64 // the last turn that is over
}

func freeze(conf map[string]any, out *fd.FD) error {
	turn, err := turnOf(conf)
	if err != nil {
		return err
	}
	mount, _ := conf["mount"].(string)
	dir, _ := conf["dir"].(string)
	if out == nil {
		return errors.New("freeze: no file came with the call")
	}
	k := guest.kernel.Load()
	if k == nil {
		return errors.New("freeze: PID 1 has not started a thread yet")
	}
	frozen.mu.Lock()
	defer frozen.mu.Unlock()
	switch {
	case frozen.is:
		return errors.New("freeze: the guest is frozen already")
	case turn <= frozen.thawed:
		return errors.New("freeze: it was given up")
	}
	k.Pause()
	if err := saveTree(k, mount, dir, out); err != nil {
		k.Unpause()
		return fmt.Errorf("freeze: %w", err)
	}
	frozen.is = true
	return nil
}

// tree writes a further tree of a frozen guest.
func tree(conf map[string]any, out *fd.FD) error {
	mount, _ := conf["mount"].(string)
	dir, _ := conf["dir"].(string)
	if out == nil {
		return errors.New("write a tree: no file came with the call")
	}
	frozen.mu.Lock()
	defer frozen.mu.Unlock()
	if !frozen.is {
		return errors.New("write a tree: the guest is not frozen")
	}
	if err := saveTree(guest.kernel.Load(), mount, dir, out); err != nil {
		return fmt.Errorf("write a tree: %w", err)
	}
	return nil
}

func thaw(conf map[string]any) error {
	turn, err := turnOf(conf)
	if err != nil {
		return err
	}
	frozen.mu.Lock()
	defer frozen.mu.Unlock()
	frozen.thawed = max(frozen.thawed, turn)
	if k := guest.kernel.Load(); k != nil && frozen.is {
		frozen.is = false
		k.Unpause()
	}
	return nil
}

// saver walks one tmpfs.
type saver struct {
	ctx   context.Context
	vfs   *vfs.VirtualFilesystem
	creds *auth.Credentials
	mnt   *vfs.Mount
	w     *savedtree.Writer
	node  savedtree.Node
}

func saveTree(k *kernel.Kernel, mount, dir string, out *fd.FD) error {
	ctx := k.SupervisorContext()
	fs, root, err := findTmpfs(ctx, k.VFS(), mount)
	if err != nil {
		return err
	}
	defer fs.DecRef(ctx)
	s := &saver{ctx: ctx, vfs: k.VFS(), creds: auth.NewRootCredentials(k.RootUserNamespace()), w: savedtree.NewWriter(out)}
	s.mnt = s.vfs.NewDisconnectedMount(fs, root, &vfs.MountOptions{ReadOnly: true})
	defer s.mnt.DecRef(ctx)
	top := vfs.MakeVirtualDentry(s.mnt, root)
	start, err := s.vfs.GetDentryAt(ctx, s.creds, &vfs.PathOperation{Root: top, Start: top, Path: fspath.Parse(dir)}, &vfs.GetDentryOptions{})
	if err != nil {
		return fmt.Errorf("look up %s in %s: %w", dir, mount, err)
	}
	defer start.DecRef(ctx)
	if err := s.add(start, "", ""); err != nil {
		return err
	}
	return s.w.Close()
}

// findTmpfs finds the tmpfs on a file of its own that a spec mounts at a path,
// wherever it is mounted by now. The caller drops the reference to it.
func findTmpfs(ctx context.Context, v *vfs.VirtualFilesystem, mount string) (found *vfs.Filesystem, root *vfs.Dentry, err error) {
	for _, fs := range v.GetFilesystems() {
		if mf := tmpfs.MemoryFileOf(fs); found == nil && mf != nil && mf.ResourceID().Path == mount {
			found = fs
			continue
		}
		fs.DecRef(ctx)
	}
	if found == nil {
		return nil, nil, fmt.Errorf("no file system for %s", mount)
	}
	if root, err = tmpfsRoot(found); err != nil {
		found.DecRef(ctx)
		return nil, nil, err
	}
	return found, root, nil
}

// add writes the file name in dir, and what is in it, if it is a directory.
// An empty name means dir itself.
func (s *saver) add(dir vfs.VirtualDentry, name, parent string) error {
	pop := vfs.PathOperation{Root: dir, Start: dir, Path: fspath.Parse(name)}
	st, err := s.vfs.StatAt(s.ctx, s.creds, &pop, &vfs.StatOptions{Mask: linux.STATX_BASIC_STATS})
	if err != nil {
		return fmt.Errorf("stat %q in %q: %w", name, parent, err)
	}
	n := &s.node
	*n = savedtree.Node{
		Path: path.Join(parent, name), Mode: uint32(st.Mode), UID: st.UID, GID: st.GID,
		Sec: st.Mtime.Sec, Nsec: st.Mtime.Nsec, Inode: st.Ino, Links: st.Nlink,
		Xattrs: n.Xattrs[:0], Extents: n.Extents[:0],
	}
	isDir := false
	switch st.Mode & linux.S_IFMT {
	case linux.S_IFREG:
		n.Size = int64(st.Size)
		err = s.extents(&pop)
	case linux.S_IFLNK:
		n.Target, err = s.vfs.ReadlinkAt(s.ctx, s.creds, &pop)
	case linux.S_IFCHR, linux.S_IFBLK:
		n.Major, n.Minor = st.RdevMajor, st.RdevMinor
	case linux.S_IFDIR:
		isDir = true
	}
	if err == nil {
		err = s.xattrs(&pop)
	}
	if err == nil {
		err = s.w.Add(n)
	}
	if err != nil {
		return fmt.Errorf("save %q in %q: %w", name, parent, err)
	}
	if isDir {
		return s.addDir(&pop, n.Path)
	}
	return nil
}

func (s *saver) addDir(pop *vfs.PathOperation, p string) error {
	f, err := s.vfs.OpenAt(s.ctx, s.creds, pop, &vfs.OpenOptions{Flags: linux.O_RDONLY | linux.O_DIRECTORY})
	if err != nil {
		return fmt.Errorf("open %q: %w", p, err)
	}
	defer f.DecRef(s.ctx)
	var names []string
	err = f.IterDirents(s.ctx, vfs.IterDirentsCallbackFunc(func(d vfs.Dirent) error {
		if d.Name != "." && d.Name != ".." {
			names = append(names, d.Name)
		}
		return nil
	}))
	if err != nil {
		return fmt.Errorf("list %q: %w", p, err)
	}
	for _, name := range names {
		if err := s.add(f.VirtualDentry(), name, p); err != nil {
			return err
		}
	}
	return nil
}

func (s *saver) xattrs(pop *vfs.PathOperation) error {
	names, err := s.vfs.ListXattrAt(s.ctx, s.creds, pop, 0)
	if err != nil {
		return err
	}
	for _, name := range names {
		v, err := s.vfs.GetXattrAt(s.ctx, s.creds, pop, &vfs.GetXattrOptions{Name: name})
		if err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
		s.node.Xattrs = append(s.node.Xattrs, savedtree.Xattr{Name: name, Value: []byte(v)})
	}
	return nil
}

// extents finds where in the memory file the content of a regular file is.
func (s *saver) extents(pop *vfs.PathOperation) error {
	vd, err := s.vfs.GetDentryAt(s.ctx, s.creds, pop, &vfs.GetDentryOptions{})
	if err != nil {
		return err
	}
	defer vd.DecRef(s.ctx)
	data, err := tmpfsData(vd.Dentry())
	if err != nil {
		return err
	}
	for seg := data.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
		s.node.Extents = append(s.node.Extents, savedtree.Extent{Start: int64(seg.Start()), End: int64(seg.End()), At: int64(seg.Value())})
	}
	return nil
}

// What follows reads fields of package tmpfs that it does not export: the root
// of a file system, and the ranges of a regular file, which no call tells
// without filling the holes between them. The types of the fields are
// checked; a gVisor in which they are others gives an error.

func tmpfsRoot(fs *vfs.Filesystem) (*vfs.Dentry, error) {
	root, err := field(reflect.ValueOf(fs.Impl()), "root")
	if err != nil {
		return nil, err
	}
	d, err := field(root, "vfsd")
	if err != nil {
		return nil, err
	}
	if d.Type() != reflect.TypeFor[vfs.Dentry]() {
		return nil, fmt.Errorf("tmpfs: a dentry has a %s", d.Type())
	}
	return (*vfs.Dentry)(d.Addr().UnsafePointer()), nil
}

// tmpfsData is the ranges of a regular file; nobody may write to it meanwhile.
func tmpfsData(d *vfs.Dentry) (*fsutil.FileRangeSet, error) {
	inode, err := field(reflect.ValueOf(d.Impl()), "inode")
	if err != nil {
		return nil, err
	}
	impl, err := field(inode, "impl")
	if err != nil {
		return nil, err
	}
	data, err := field(impl, "data")
	if err != nil {
		return nil, err
	}
	if data.Type() != reflect.TypeFor[fsutil.FileRangeSet]() {
		return nil, fmt.Errorf("tmpfs: a regular file's data is a %s", data.Type())
	}
	return (*fsutil.FileRangeSet)(data.Addr().UnsafePointer()), nil
}

// field is a field of the struct that v leads to.
func field(v reflect.Value, name string) (reflect.Value, error) {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}, fmt.Errorf("tmpfs: the way to %s ends at a %s", name, v.Kind())
	}
	f := v.FieldByName(name)
	if !f.IsValid() {
		return reflect.Value{}, fmt.Errorf("tmpfs: %s has no %s", v.Type(), name)
	}
	return f, nil
}
