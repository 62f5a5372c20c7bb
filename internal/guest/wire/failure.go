package wire

// Code is the class of a failure.
type Code uint8

// Classes of failures.
const (
	CodeOK           Code = iota
	CodeErrno             // a system call failed: Failure.Errno
	CodeNoDir             // the working directory cannot be entered
	CodeNoCommand         // no command has this ID
	CodeFinished          // the command has ended
	CodeNotRegular        // the path is no regular file
	CodeNotAssembled      // commands run only after KindAssemble
	CodeBadRequest        // malformed, or not possible in this state
	CodeSuperseded        // a newer attach took over
	CodeCursor            // the cursor is outside what the agent still has
	CodeLimit             // one of the agent's bounds is reached
	CodeSecret            // the preface's secret is wrong
)

// Failure is the answer to a request that failed.
type Failure struct {
	Code  Code
	Errno uint16 // the guest's errno, 0 where none
	Text  string // what failed, without the error's own text
	Path  string // the file at fault, where there is one
}

// Append appends the encoded message.
func (m *Failure) Append(b []byte) []byte {
	b = append(b, byte(m.Code), byte(m.Errno>>8), byte(m.Errno))
	return appendString(appendString(b, m.Text), m.Path)
}

// Decode reads the message.
func (m *Failure) Decode(b []byte) error {
	d := decoder{b: b}
	m.Code = Code(d.u8())
	m.Errno = d.u16()
	m.Text = d.string()
	m.Path = d.string()
	return d.end()
}
