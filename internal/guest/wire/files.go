package wire

// Path names a file by its absolute path.
type Path struct{ Path string }

// Append appends the encoded message.
func (m *Path) Append(b []byte) []byte { return appendString(b, m.Path) }

// Decode reads the message; it fails for a path that is not absolute or
// holds a NUL.
func (m *Path) Decode(b []byte) error {
	d := decoder{b: b}
	m.Path = d.path()
	return d.end()
}

func (d *decoder) path() string {
	p := d.string()
	if p == "" || p[0] != '/' || hasNUL(p) {
		d.bad = true
	}
	return p
}

func hasNUL(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return true
		}
	}
	return false
}

// Stat is a file's attributes; Mode is the kernel's st_mode.
type Stat struct {
	Size     int64
	Mode     uint32
	UID, GID uint32
	MtimeNS  int64 // nanoseconds since 1970
}

// Append appends the encoded message.
func (m *Stat) Append(b []byte) []byte {
	b = AppendU64(b, uint64(m.Size))
	b = AppendU32(b, m.Mode)
	b = AppendU32(b, m.UID)
	b = AppendU32(b, m.GID)
	return AppendU64(b, uint64(m.MtimeNS))
}

// Decode reads the message.
func (m *Stat) Decode(b []byte) error {
	d := decoder{b: b}
	m.Size = int64(d.u64())
	m.Mode, m.UID, m.GID = d.u32(), d.u32(), d.u32()
	m.MtimeNS = int64(d.u64())
	return d.end()
}

// Mkdir makes one directory.
type Mkdir struct {
	Path     string
	Mode     uint32
	UID, GID uint32
}

// Append appends the encoded message.
func (m *Mkdir) Append(b []byte) []byte {
	b = appendString(b, m.Path)
	b = AppendU32(b, m.Mode)
	b = AppendU32(b, m.UID)
	return AppendU32(b, m.GID)
}

// Decode reads the message.
func (m *Mkdir) Decode(b []byte) error {
	d := decoder{b: b}
	m.Path = d.path()
	m.Mode, m.UID, m.GID = d.u32(), d.u32(), d.u32()
	return d.end()
}

// Tx opens a transaction; all that it makes belongs to UID and GID.
type Tx struct{ UID, GID uint32 }

// Append appends the encoded message.
func (m *Tx) Append(b []byte) []byte { return AppendU32(AppendU32(b, m.UID), m.GID) }

// Decode reads the message.
func (m *Tx) Decode(b []byte) error {
	d := decoder{b: b}
	m.UID, m.GID = d.u32(), d.u32()
	return d.end()
}

// EntryType is what an Entry makes.
type EntryType uint8

// What an Entry can make.
const (
	EntryDir EntryType = 1 + iota
	EntryFile
	EntrySymlink
	EntryHardlink
	EntryFIFO
)

// Entry is one object of a transaction. Missing parents are made. Path is
// absolute and clean; Target is a symlink's text, or the absolute path that a
// hard link names.
type Entry struct {
	Type    EntryType
	Path    string
	Target  string
	Mode    uint32 // permissions with setuid, setgid and sticky bits
	MtimeNS int64  // nanoseconds since 1970
}

// Append appends the encoded message.
func (m *Entry) Append(b []byte) []byte {
	b = append(b, byte(m.Type))
	b = appendString(b, m.Path)
	b = appendString(b, m.Target)
	b = AppendU32(b, m.Mode)
	return AppendU64(b, uint64(m.MtimeNS))
}

// Decode reads the message.
func (m *Entry) Decode(b []byte) error {
	d := decoder{b: b}
	m.Type = EntryType(d.u8())
	m.Path = d.path()
	m.Target = d.string()
	m.Mode = d.u32()
	m.MtimeNS = int64(d.u64())
	if m.Type < EntryDir || m.Type > EntryFIFO || hasNUL(m.Target) {
		d.bad = true
	}
	return d.end()
}

// TempPrefix begins the names under which a transaction makes its objects, two
// numbers with a dash between them follow.
const TempPrefix = ".glovebox-"
