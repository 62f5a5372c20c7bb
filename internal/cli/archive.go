package cli

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// packInto writes src (a file or a directory, from this machine) to w as a
// tar whose first entry is named name. Symbolic links stay links; sockets,
// FIFOs and devices cannot be copied.
func packInto(w *tar.Writer, src, name string) error {
	return filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return err
		}
		return packOne(w, p, path.Join(name, filepath.ToSlash(rel)), p == src)
	})
}

// packOne writes one entry; the object that the user named is followed if it
// is a link, as cp does with its arguments.
func packOne(w *tar.Writer, from, name string, follow bool) error {
	stat := os.Lstat
	if follow {
		stat = os.Stat
	}
	fi, err := stat(from)
	if err != nil {
		return err
	}
	var target string
	if fi.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(from); err != nil {
			return err
		}
	}
	if !fi.Mode().IsRegular() && !fi.IsDir() && target == "" {
		return fail(fmt.Sprintf("%s is a %s, which cannot be copied", from, kindOf(fi.Mode())), "copy regular files, directories and links")
	}
	h, err := tar.FileInfoHeader(fi, target)
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	h.Name = name
	if fi.IsDir() {
		h.Name += "/"
	}
	// Owners of this machine mean nothing in a sandbox.
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if !fi.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	// A file that grows meanwhile is cut; one that shrinks is an error.
	if _, err := io.CopyN(w, f, h.Size); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "FIFO"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// unpackTo writes the entries of r, which a sandbox made and which are
// therefore hostile, to root, below the name top. Nothing can be written outside root: every access goes
// through an os.Root. Devices and FIFOs are left out and reported to skip.
func unpackTo(root *os.Root, top string, r *tar.Reader, skip func(name string)) error {
	type later struct {
		name string
		mode fs.FileMode
	}
	var dirs []later // their modes last, so that they can be written to until then
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the sandbox's archive: %w", err)
		}
		name, ok := below(h.Name, top)
		if !ok {
			return fail(fmt.Sprintf("the sandbox sent an entry with the name %q", printable(h.Name)), "copy single files instead")
		}
		mode := h.FileInfo().Mode().Perm()
		switch h.Typeflag {
		case tar.TypeDir:
			if err := root.MkdirAll(name, 0o755); err != nil {
				return err
			}
			dirs = append(dirs, later{name, mode})
		case tar.TypeReg:
			err = unpackFile(root, name, mode, r)
		case tar.TypeSymlink:
			err = replaceWith(root, name, func() error { return root.Symlink(h.Linkname, name) })
		case tar.TypeLink:
			old, ok := below(h.Linkname, top)
			if !ok {
				return fail(fmt.Sprintf("the sandbox sent a link to %q", printable(h.Linkname)), "copy single files instead")
			}
			err = replaceWith(root, name, func() error { return root.Link(old, name) })
		default:
			skip(h.Name)
		}
		if err != nil {
			return err
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := root.Chmod(dirs[i].name, dirs[i].mode); err != nil {
			return err
		}
	}
	return nil
}

// below puts an entry's name below top; false if it would lead elsewhere.
func below(name, top string) (string, bool) {
	name = path.Clean(name)
	if !filepath.IsLocal(name) {
		return "", false
	}
	return path.Join(top, name), true
}

func unpackFile(root *os.Root, name string, mode fs.FileMode, r io.Reader) error {
	return replaceWith(root, name, func() error {
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		if err == nil {
			err = f.Chmod(mode)
		}
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		return err
	})
}

// replaceWith removes what is not a directory at name and makes it anew, so
// that nothing is written through an old link.
func replaceWith(root *os.Root, name string, create func() error) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if fi, err := root.Lstat(name); err == nil && !fi.IsDir() {
		if err := root.Remove(name); err != nil {
			return err
		}
	}
	return create()
}
