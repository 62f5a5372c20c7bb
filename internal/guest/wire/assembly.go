package wire

// Assembly is how the root is made.
type Assembly struct {
	Layers   uint8
	Resumed  bool // the layers were assembled before: make only what is here
	Hostname string
	UID, GID uint32 // of Dirs, and of drives that have no layers
	Dirs     []string
	Files    []File
	Extras
	Drives []Drive
}

// Drive is a disk that is mounted below the root; the i-th here is the i-th of
// the machine. It comes after all else, and its extras are made in it.
type Drive struct {
	Path     string
	Layers   uint8
	ReadOnly bool
	Extras
}

// Extras are what layers cannot hold.
type Extras struct {
	Devices []Device
	Xattrs  []Xattr
	Links   []Link
}

// Link is a name that is to be a hard link to Target.
type Link struct{ Path, Target string }

// File is a small file of the root, owned by root, mode 0644.
type File struct {
	Path string
	Data []byte
}

// Xattr is an extended attribute of a path.
type Xattr struct {
	Path, Name string
	Value      []byte
}

// Device is a device file.
type Device struct {
	Path         string
	Mode         uint32 // st_mode
	UID, GID     uint32
	Major, Minor uint32
	MtimeNS      int64 // nanoseconds since 1970
}

// yes is a flag that is set.
const yes = 1

func appendFlag(b []byte, set bool) []byte {
	if set {
		return append(b, yes)
	}
	return append(b, 0)
}

// Append appends the encoded message.
func (m *Assembly) Append(b []byte) []byte {
	b = appendFlag(append(b, m.Layers), m.Resumed)
	b = appendString(b, m.Hostname)
	b = AppendU32(b, m.UID)
	b = AppendU32(b, m.GID)
	b = appendStrings(b, m.Dirs)
	b = AppendU32(b, uint32(len(m.Files)))
	for _, f := range m.Files {
		b = appendString(b, f.Path)
		b = appendString(b, string(f.Data))
	}
	b = m.Extras.append(b)
	b = AppendU32(b, uint32(len(m.Drives)))
	for i := range m.Drives {
		d := &m.Drives[i]
		b = appendFlag(append(appendString(b, d.Path), d.Layers), d.ReadOnly)
		b = d.Extras.append(b)
	}
	return b
}

func (x *Extras) append(b []byte) []byte {
	b = AppendU32(b, uint32(len(x.Devices)))
	for _, v := range x.Devices {
		b = appendString(b, v.Path)
		for _, n := range [...]uint32{v.Mode, v.UID, v.GID, v.Major, v.Minor} {
			b = AppendU32(b, n)
		}
		b = AppendU64(b, uint64(v.MtimeNS))
	}
	b = AppendU32(b, uint32(len(x.Xattrs)))
	for _, x := range x.Xattrs {
		b = appendString(b, x.Path)
		b = appendString(b, x.Name)
		b = appendString(b, string(x.Value))
	}
	b = AppendU32(b, uint32(len(x.Links)))
	for _, l := range x.Links {
		b = appendString(b, l.Path)
		b = appendString(b, l.Target)
	}
	return b
}

// Decode reads the message; the byte slices alias b.
func (m *Assembly) Decode(b []byte) error {
	d := decoder{b: b}
	m.Layers = d.u8()
	m.Resumed = d.u8() == yes
	m.Hostname = d.string()
	m.UID, m.GID = d.u32(), d.u32()
	m.Dirs = d.strings()
	m.Files = nil
	for range d.count(8) {
		m.Files = append(m.Files, File{d.path(), d.bytes()})
	}
	m.Extras = d.extras()
	m.Drives = nil
	for range d.count(18) {
		m.Drives = append(m.Drives, Drive{d.path(), d.u8(), d.u8() == yes, d.extras()})
	}
	return d.end()
}

func (d *decoder) extras() (x Extras) {
	for range d.count(32) {
		x.Devices = append(x.Devices, Device{d.path(), d.u32(), d.u32(), d.u32(), d.u32(), d.u32(), int64(d.u64())})
	}
	for range d.count(12) {
		x.Xattrs = append(x.Xattrs, Xattr{d.path(), d.string(), d.bytes()})
	}
	for range d.count(8) {
		x.Links = append(x.Links, Link{d.path(), d.path()})
	}
	return x
}
