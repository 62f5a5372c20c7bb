package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// message is what all messages of this package are.
type message interface {
	Append([]byte) []byte
	Decode([]byte) error
}

// examples has every message with all its fields set.
var examples = []message{
	&Start{ID: "cmd_1", Argv: []string{"a", "", "b c"}, Env: []string{"K=V", "\xff=\n"}, Dir: "/d", UID: 1, GID: 2, Groups: []uint32{3, 4}, Flags: FlagTTY, Rows: 24, Cols: 300, Follow: 7},
	&ID{ID: "x"},
	&Attach{ID: "x", Cursor: 1 << 40},
	&Offset{N: 1 << 50},
	&Signal{ID: "x", Sig: 9, Tree: true},
	&Stdin{ID: "x", Data: []byte("in\x00put")},
	&Resize{ID: "x", Rows: 400, Cols: 2},
	&Path{Path: "/a/é"},
	&Stat{Size: 1 << 40, Mode: 0o100644, UID: 1, GID: 2, MtimeNS: -5},
	&Mkdir{Path: "/d", Mode: 0o755, UID: 1, GID: 2},
	&Tx{UID: 1, GID: 2},
	&Entry{Type: EntrySymlink, Path: "/l", Target: "../t", Mode: 0o777, MtimeNS: 1e18},
	&Assembly{Layers: 2, Hostname: "h", UID: 1, GID: 2, Dirs: []string{"/d"}, Files: []File{{"/etc/hosts", []byte("x")}}, Extras: Extras{Xattrs: []Xattr{{"/bin/ping", "security.capability", []byte{1, 2}}}},
		Drives: []Drive{{Path: "/data", Layers: 3, ReadOnly: true, Extras: Extras{
			Devices: []Device{{"/data/d", 0o20600, 1, 2, 3, 4, 5}}, Links: []Link{{"/data/a", "/data/b"}}}}, {Path: "/more"}}},
	&Failure{Code: CodeErrno, Errno: 28, Text: "write", Path: "/f"},
	&Preface{Mode: ModeDial, Secret: [32]byte{1, 31: 9}, Port: 8080},
}

func blank(m message) message { return reflect.New(reflect.TypeOf(m).Elem()).Interface().(message) }

func TestMessages(t *testing.T) {
	for _, m := range examples {
		b := m.Append([]byte("before"))[6:]
		got := blank(m)
		if err := got.Decode(b); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: %+v, %v, want %+v", m, got, err, m)
		}
		for n := range b {
			if _, ok := m.(*Stdin); ok && n >= 5 {
				continue // its data has no length of its own
			}
			if err := blank(m).Decode(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%T cut to %d of %d bytes: %v", m, n, len(b), err)
			}
		}
		if _, ok := m.(*Stdin); !ok && blank(m).Decode(append(b, 0)) == nil {
			t.Errorf("%T: a byte too many was taken", m)
		}
	}
}

func TestMessagesRefused(t *testing.T) {
	for name, m := range map[string]message{
		"start without argv":  &Start{ID: "x"},
		"start without id":    &Start{Argv: []string{"a"}},
		"start with long id":  &Start{ID: strings.Repeat("x", MaxID+1), Argv: []string{"a"}},
		"attach before 0":     &Attach{ID: "x", Cursor: -1},
		"negative offset":     &Offset{N: -1},
		"signal 65":           &Signal{ID: "x", Sig: 65},
		"much stdin":          &Stdin{ID: "x", Data: make([]byte, MaxStdin+1)},
		"relative path":       &Path{Path: "a"},
		"empty path":          &Path{},
		"path with NUL":       &Path{Path: "/a\x00"},
		"entry of no type":    &Entry{Path: "/a"},
		"entry of other type": &Entry{Type: EntryFIFO + 1, Path: "/a"},
		"target with NUL":     &Entry{Type: EntrySymlink, Path: "/a", Target: "\x00"},
		"file without path":   &Assembly{Files: []File{{}}},
		"drive without path":  &Assembly{Drives: []Drive{{}}},
		"mode of no kind":     &Preface{Mode: 9},
	} {
		if err := blank(m).Decode(m.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := AppendU32(AppendU32(nil, 1), 'x')
	long = append(long[:4], append([]byte{'x'}, AppendU32(nil, 1<<30)...)...)
	if err := new(Start).Decode(long); !errors.Is(err, ErrMalformed) {
		t.Errorf("a list longer than its message: %v", err)
	}
}

func TestHeader(t *testing.T) {
	h := Header{Stream: 1 << 31, Kind: KindData, Len: MaxPayload}
	b := AppendHeader(nil, h)
	var c [HeaderSize]byte
	PutHeader(c[:], h)
	if got, err := ParseHeader(b); err != nil || got != h || !bytes.Equal(b, c[:]) {
		t.Errorf("%+v %v", got, err)
	}
	b = AppendHeader(nil, Header{Len: MaxPayload + 1})
	if _, err := ParseHeader(b); !errors.Is(err, ErrMalformed) {
		t.Errorf("too long: %v", err)
	}
	if f := AppendFrame(nil, 3, KindOK, []byte("ab")); !bytes.Equal(f, []byte("\x00\x00\x00\x03\x40\x00\x00\x00\x02ab")) {
		t.Errorf("frame: %x", f)
	}
}

func FuzzMessages(f *testing.F) {
	for i, m := range examples {
		f.Add(uint8(i), m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		m := blank(examples[int(which)%len(examples)])
		if m.Decode(b) != nil {
			return
		}
		again := blank(m)
		if err := again.Decode(m.Append(nil)); err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%T: %+v becomes %+v, %v", m, m, again, err)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(AppendHeader(nil, Header{1, KindPing, 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		h, err := ParseHeader(b)
		if err == nil && (h.Len < 0 || h.Len > MaxPayload || !bytes.Equal(AppendHeader(nil, h), b[:HeaderSize])) {
			t.Errorf("%x: %+v", b, h)
		}
	})
}
