package wire

// Start is a process to start. Env is complete.
type Start struct {
	ID         string
	Argv, Env  []string
	Dir        string
	UID, GID   uint32
	Groups     []uint32
	Flags      uint8
	Rows, Cols uint16 // with FlagTTY
	// Follow is the stream on which a command that this request starts is
	// attached to at once; 0: none.
	Follow uint32
}

// Flags of Start.
const (
	FlagStdin uint8 = 1 << iota // stdin is a pipe that Stdin requests fill
	FlagTTY                     // stdin, stdout and stderr are a terminal
)

// Append appends the encoded message.
func (m *Start) Append(b []byte) []byte {
	b = appendString(b, m.ID)
	b = appendStrings(b, m.Argv)
	b = appendStrings(b, m.Env)
	b = appendString(b, m.Dir)
	b = AppendU32(b, m.UID)
	b = AppendU32(b, m.GID)
	b = AppendU32(b, uint32(len(m.Groups)))
	for _, g := range m.Groups {
		b = AppendU32(b, g)
	}
	b = append(b, m.Flags)
	b = append(b, byte(m.Rows>>8), byte(m.Rows), byte(m.Cols>>8), byte(m.Cols))
	return AppendU32(b, m.Follow)
}

// Decode reads the message; it fails with ErrMalformed, also for an ID that
// is empty or too long and for a command without arguments.
func (m *Start) Decode(b []byte) error {
	d := decoder{b: b}
	m.ID = d.string()
	m.Argv = d.strings()
	m.Env = d.strings()
	m.Dir = d.string()
	m.UID, m.GID = d.u32(), d.u32()
	m.Groups = nil
	for range d.count(4) {
		m.Groups = append(m.Groups, d.u32())
	}
	m.Flags = d.u8()
	m.Rows, m.Cols = d.u16(), d.u16()
	m.Follow = d.u32()
	if m.ID == "" || len(m.ID) > MaxID || len(m.Argv) == 0 {
		d.bad = true
	}
	return d.end()
}

// ID names a command.
type ID struct{ ID string }

// Append appends the encoded message.
func (m *ID) Append(b []byte) []byte { return appendString(b, m.ID) }

// Decode reads the message.
func (m *ID) Decode(b []byte) error {
	d := decoder{b: b}
	m.ID = d.string()
	return d.end()
}

// Attach asks for a command's log from Cursor on, and says that all before
// it is stored.
type Attach struct {
	ID     string
	Cursor int64
}

// Append appends the encoded message.
func (m *Attach) Append(b []byte) []byte {
	return AppendU64(appendString(b, m.ID), uint64(m.Cursor))
}

// Decode reads the message.
func (m *Attach) Decode(b []byte) error {
	d := decoder{b: b}
	m.ID = d.string()
	m.Cursor = int64(d.u64())
	if m.Cursor < 0 {
		d.bad = true
	}
	return d.end()
}

// Offset is a position or a number of bytes.
type Offset struct{ N int64 }

// Append appends the encoded message.
func (m *Offset) Append(b []byte) []byte { return AppendU64(b, uint64(m.N)) }

// Decode reads the message.
func (m *Offset) Decode(b []byte) error {
	d := decoder{b: b}
	m.N = int64(d.u64())
	if m.N < 0 {
		d.bad = true
	}
	return d.end()
}

// Signal sends a signal to a command's process group, or with Tree to all its
// descendants.
type Signal struct {
	ID   string
	Sig  uint8
	Tree bool
}

// Append appends the encoded message.
func (m *Signal) Append(b []byte) []byte {
	return append(appendString(b, m.ID), m.Sig, flag(m.Tree))
}

// Decode reads the message.
func (m *Signal) Decode(b []byte) error {
	d := decoder{b: b}
	m.ID = d.string()
	m.Sig = d.u8()
	m.Tree = d.u8() != 0
	if m.Sig > 64 {
		d.bad = true
	}
	return d.end()
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// Stdin is input for a command.
type Stdin struct {
	ID   string
	Data []byte
}

// Append appends the encoded message.
func (m *Stdin) Append(b []byte) []byte { return append(appendString(b, m.ID), m.Data...) }

// Decode reads the message; Data aliases b.
func (m *Stdin) Decode(b []byte) error {
	d := decoder{b: b}
	m.ID = d.string()
	m.Data = d.take(len(d.b))
	if len(m.Data) > MaxStdin {
		d.bad = true
	}
	return d.end()
}

// Resize is a terminal's new size.
type Resize struct {
	ID         string
	Rows, Cols uint16
}

// Append appends the encoded message.
func (m *Resize) Append(b []byte) []byte {
	return append(appendString(b, m.ID), byte(m.Rows>>8), byte(m.Rows), byte(m.Cols>>8), byte(m.Cols))
}

// Decode reads the message.
func (m *Resize) Decode(b []byte) error {
	d := decoder{b: b}
	m.ID = d.string()
	m.Rows, m.Cols = d.u16(), d.u16()
	return d.end()
}
