package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

// Extra is what a file has that its layer cannot hold.
type Extra struct {
	Xattrs map[string][]byte
	// File is the same for all names of one file, where it has several: to
	// set attributes takes a copy of it, and each name would get its own.
	File   string
	Device *Device // of a character or block device
}

// Device is a device file.
type Device struct {
	Mode         uint32 // st_mode
	UID, GID     uint32
	Major, Minor uint32
	ModTime      time.Time
}

// Extras are those of a stack of layers, by absolute path.
type Extras map[string]Extra

// record is the JSON file beside a layer.
type record struct {
	Version int            `json:"version"`
	Size    int64          `json:"size"` // of the layer's file
	Meta    int64          `json:"meta"` // this and Holes: see layer.Info
	Holes   []layer.Extent `json:"holes,omitempty"`
	Files   []recordFile   `json:"files,omitempty"`
}

const recordVersion = 1

// layer is what the record is of.
func (r *record) layer(digest, path string) image.Layer {
	l := image.Layer{Digest: digest, Path: path, Size: r.Size}
	for _, h := range r.Holes {
		l.Holes += h.Length
	}
	return l
}

// recordFile is an Extra in JSON. Names are bytes: they need not be text.
type recordFile struct {
	Path   []byte        `json:"path"`
	Xattrs []recordXattr `json:"xattrs,omitempty"`
	File   string        `json:"file,omitempty"`
	Device *Device       `json:"device,omitempty"`
}

type recordXattr struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

func newRecord(x Extras) *record {
	r := &record{Version: recordVersion}
	for _, p := range slices.Sorted(maps.Keys(x)) {
		f := recordFile{Path: []byte(p), File: x[p].File, Device: x[p].Device}
		for _, name := range slices.Sorted(maps.Keys(x[p].Xattrs)) {
			f.Xattrs = append(f.Xattrs, recordXattr{[]byte(name), x[p].Xattrs[name]})
		}
		r.Files = append(r.Files, f)
	}
	return r
}

func (r *record) extras() Extras {
	x := Extras{}
	for _, f := range r.Files {
		e := Extra{File: f.File, Device: f.Device}
		for _, a := range f.Xattrs {
			if e.Xattrs == nil {
				e.Xattrs = map[string][]byte{}
			}
			e.Xattrs[string(a.Name)] = a.Value
		}
		x[string(f.Path)] = e
	}
	return x
}

// maxExtras bounds the extras of a stack in bytes: the agent gets all of them
// in one request when a machine is assembled.
const maxExtras = 32 << 20

// check refuses more than a machine can be given.
func (x Extras) check() error {
	sum := 0
	for p, e := range x {
		sum += 64
		for name, v := range e.Xattrs {
			sum += 16 + len(p) + len(name) + len(v)
		}
	}
	if sum > maxExtras {
		return fmt.Errorf("extended attributes of %d bytes in all files together: at most %d can be kept: remove some", sum, maxExtras)
	}
	return nil
}

// Extras returns what a stack's layers cannot hold, bottom first.
func (s *Store) Extras(layers []image.Layer) (Extras, error) {
	for i := len(layers) - 1; i >= 0; i-- {
		r, err := s.record(layers[i].Digest)
		if err == nil {
			return r.extras(), nil // of the whole stack up to here
		}
		if !errors.Is(err, ErrNotFound) || i > 0 {
			return nil, err
		}
	}
	// An image alone: its layers bring their own attributes.
	x := Extras{}
	for _, l := range layers {
		for p, attrs := range l.Xattrs {
			x[p] = Extra{Xattrs: attrs}
		}
	}
	return x, nil
}

func (s *Store) record(digest string) (*record, error) {
	if !digestPattern.MatchString(digest) {
		return nil, fmt.Errorf("layer digest %q: must be sha256: and 64 hexadecimal digits", digest)
	}
	b, err := os.ReadFile(s.recordPath(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("layer %s: %w", digest, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", digest, err)
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("record of layer %s: %w", digest, err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("record of layer %s: version %d is not known: a newer Glovebox made it", digest, r.Version)
	}
	return &r, nil
}

func (s *Store) writeRecord(digest string, r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.scratch.Install(s.recordPath(digest), 0o444, func(f *os.File) error {
		_, err := f.Write(b)
		return err
	})
}

// hides reports whether a layer has a file or whiteout in place of p, or of
// what leads there.
func hides(t *layer.Tree, p string) bool {
	if _, ok := t.Mode(p); ok {
		return true
	}
	for i, c := range p {
		if c != '/' || i == 0 {
			continue
		}
		mode, ok := t.Mode(p[:i])
		if !ok {
			return false
		}
		if !isDir(mode) {
			return true
		}
	}
	return false
}

// equalXattrs reports whether two files have the same extended attributes.
func equalXattrs(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// keepXattr says which attributes are the user's.
func keepXattr(name string) bool {
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.") ||
		strings.HasPrefix(name, "system.posix_acl_") || name == "security.capability"
}
