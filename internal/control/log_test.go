package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func record(kind wire.RecordKind, data string) []byte {
	b := make([]byte, wire.RecordHeaderSize)
	wire.PutRecordHeader(b, kind, len(data))
	return append(b, data...)
}

// Output in any records, that come in any pieces, read at any pace: every
// reader gets the same bytes of each stream, and so does one that comes after
// the end.
func TestLogPieces(t *testing.T) {
	dir := t.TempDir()
	n := 0
	noWait, cancel := context.WithCancel(t.Context())
	cancel()
	rapid.Check(t, func(r *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		l, err := createLog(path, 1<<20)
		if err != nil {
			r.Fatal(err)
		}
		var stream []byte
		want := map[wire.RecordKind][]byte{}
		for range rapid.IntRange(0, 20).Draw(r, "records") {
			kind := rapid.SampledFrom([]wire.RecordKind{wire.RecordStdout, wire.RecordStderr}).Draw(r, "kind")
			data := rapid.SliceOfN(rapid.SampledFrom([]byte{'a', '\n', 0xe2, 0x98, 0x95, 0xff}), 0, 12).Draw(r, "data")
			stream = append(stream, record(kind, string(data))...)
			want[kind] = append(want[kind], data...)
		}
		cut := rapid.Bool().Draw(r, "the machine dies")
		if cut {
			stream = stream[:rapid.IntRange(0, len(stream)).Draw(r, "at")]
			want = payloads(stream)
		} else {
			stream = wire.AppendExit(stream, 7, 0)
		}
		readers := []*LogReader{l.reader(), l.reader()}
		var got [3][2]string
		pull := func(i int) {
			for {
				s, data, err := readers[i].Next(noWait)
				if err != nil {
					return
				}
				got[i][index(s)] += data
			}
		}
		for off := 0; off < len(stream); {
			k := rapid.IntRange(1, min(30, len(stream)-off)).Draw(r, "piece")
			if err := l.append(int64(off), stream[off:off+k]); err != nil {
				r.Fatal(err)
			}
			off += k
			if rapid.Bool().Draw(r, "read") {
				pull(0)
			}
		}
		if cut {
			if err := l.end(137, 0, ""); err != nil {
				r.Fatal(err)
			}
		}
		late, err := readFinished(path, store.Command{})
		if err != nil {
			r.Fatal(err)
		}
		readers = append(readers, late)
		for i, lr := range readers {
			out, errs := drain(r, lr)
			got[i][0] += out
			got[i][1] += errs
			lr.Close()
			if w := [2]string{decodeAll(want[wire.RecordStdout]), decodeAll(want[wire.RecordStderr])}; got[i] != w {
				r.Fatalf("reader %d: %q, want %q", i, got[i], w)
			}
		}
		if code, ended := l.result(); !ended || code != 7 && !cut || code != 137 && cut {
			r.Fatalf("code %d, ended %v", code, ended)
		}
		if l.f != nil {
			r.Fatal("the file is still open")
		}
	})
}

func index(stream string) int {
	if stream == api.Stdout {
		return 0
	}
	return 1
}

// payloads of a stream whose last record may be cut.
func payloads(b []byte) map[wire.RecordKind][]byte {
	out := map[wire.RecordKind][]byte{}
	for len(b) > wire.RecordHeaderSize {
		n := min(int(wire.U32(b[1:])), len(b)-wire.RecordHeaderSize)
		out[wire.RecordKind(b[0])] = append(out[wire.RecordKind(b[0])], b[5:5+n]...)
		b = b[5+n:]
	}
	return out
}

func TestLogRefusesNonsense(t *testing.T) {
	for name, b := range map[string][]byte{
		"kind":     {9, 0, 0, 0, 0},
		"length":   {1, 255, 255, 255, 255},
		"exit":     {3, 0, 0, 0, 1, 0},
		"past end": append(wire.AppendExit(nil, 0, 0), 1),
	} {
		l, err := createLog(filepath.Join(t.TempDir(), "l"), 100)
		if err != nil {
			t.Fatal(err)
		}
		first := record(wire.RecordStdout, "kept")
		if err := l.append(0, first); err != nil {
			t.Fatal(err)
		}
		if err := l.append(int64(len(first)), b); err == nil {
			t.Errorf("%s: taken", name)
		}
		r := l.reader()
		if err := l.end(137, 0, "note\n"); err != nil {
			t.Error(name, err)
		}
		if out, _ := drain(t, r); out != "kept" {
			t.Errorf("%s: %q", name, out)
		}
		r.Close()
		if err := l.append(l.cursor(), first); err == nil {
			t.Error("appended to an ended log")
		}
	}
}

func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// A command that writes 40 MiB where 4 are kept: the reader that is there gets
// all, the disk holds little more than what is kept, and later readers are
// told how much is missing.
func TestLogLimit(t *testing.T) {
	const limit, total = 4 << 20, 40 << 20
	path := filepath.Join(t.TempDir(), "l")
	l, err := createLog(path, limit)
	if err != nil {
		t.Fatal(err)
	}
	live := l.reader()
	noWait, cancel := context.WithCancel(t.Context())
	cancel()
	got := 0
	line := strings.Repeat("x", 8191) + "\n"
	var most int64
	for written := 0; written < total; {
		for range 64 {
			if err := l.append(l.cursor(), record(wire.RecordStdout, line)); err != nil {
				t.Fatal(err)
			}
			written += len(line)
		}
		most = max(most, blocks(t, path))
		for {
			_, data, err := live.Next(noWait)
			if err != nil {
				break
			}
			got += len(data)
		}
	}
	midway := l.reader()
	if err := l.append(l.cursor(), append(record(wire.RecordStdout, "end"), wire.AppendExit(nil, 0, 0)...)); err != nil {
		t.Fatal(err)
	}
	if out, _ := drain(t, live); got+len(out) != total+3 || !strings.HasSuffix(out, "end") {
		t.Errorf("live reader: %d bytes", got+len(out))
	}
	live.Close()
	if most > 2*limit {
		t.Errorf("%d bytes on disk", most)
	}
	gotOut, gotErr := drain(t, midway)
	if !strings.HasSuffix(gotOut, "end") || len(gotOut) < limit/2 || len(gotOut) > 3*limit {
		t.Errorf("reader that came late: %d bytes", len(gotOut))
	}
	if want := fmt.Sprintf("%d bytes of output were not kept", total+3-len(gotOut)); !strings.Contains(gotErr, want) {
		t.Errorf("it is told %q, want %q", gotErr, want)
	}
	midway.Close()

	lost, kept, exit := l.lost()
	late, err := readFinished(path, store.Command{CommandData: store.CommandData{LostBytes: lost, KeptBytes: kept, ExitOffset: exit}})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	gotOut, gotErr = drain(t, late)
	if want := fmt.Sprintf("%d bytes of output were not kept", total+3-len(gotOut)); !strings.HasSuffix(gotErr, "bytes\n") || !strings.Contains(gotErr, want) {
		t.Errorf("after the end: %d bytes, and %q, want %q", len(gotOut), gotErr, want)
	}
	if b := blocks(t, path); b > limit+1<<20 {
		t.Errorf("%d bytes are on disk at the end", b)
	}
}

// A reader that stalls does not fill the disk, and holds up nobody.
func TestLogStalledReader(t *testing.T) {
	const limit = 1 << 20
	path := filepath.Join(t.TempDir(), "l")
	l, err := createLog(path, limit)
	if err != nil {
		t.Fatal(err)
	}
	stalled := l.reader()
	data := strings.Repeat("y", 60_000)
	sent := 0
	for range 400 {
		if err := l.append(l.cursor(), record(wire.RecordStdout, data)); err != nil {
			t.Fatal(err)
		}
		sent += len(data)
		if b := blocks(t, path); b > 3*limit+1<<20 {
			t.Fatalf("%d bytes on disk", b)
		}
	}
	if err := l.end(137, 0, ""); err != nil {
		t.Fatal(err)
	}
	out, errs := drain(t, stalled)
	stalled.Close()
	if want := fmt.Sprintf("%d bytes of output were not kept", sent-len(out)); !strings.Contains(errs, want) {
		t.Errorf("%d bytes, told %q, want %q", len(out), errs, want)
	}
}

// Readers of different paces beside a writer: all get everything.
func TestLogConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	l, err := createLog(path, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	rng := rand.New(rand.NewPCG(1, 2))
	var stream []byte
	for range 2000 {
		data := strings.Repeat(string(rune('a'+rng.IntN(26))), rng.IntN(3000))
		want.WriteString(data)
		stream = append(stream, record(wire.RecordStdout, data)...)
	}
	stream = wire.AppendExit(stream, 0, 0)
	var wg sync.WaitGroup
	for range 8 {
		r := l.reader()
		wg.Go(func() {
			defer r.Close()
			if out, _ := drain(t, r); out != want.String() {
				t.Errorf("%d bytes, want %d", len(out), want.Len())
			}
		})
	}
	for off := 0; off < len(stream); {
		n := min(len(stream)-off, 1+rng.IntN(50_000))
		if err := l.append(int64(off), stream[off:off+n]); err != nil {
			t.Fatal(err)
		}
		off += n
	}
	wg.Wait()
	l.release()
}

func TestLogDiskIsFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("needs /dev/full:", err)
	}
	l := newLog("full", 100)
	l.f = full
	r := l.reader()
	if err := l.append(0, record(wire.RecordStdout, "x")); err == nil {
		t.Fatal("taken")
	}
	if l.cursor() != 0 {
		t.Error("counted what was not written")
	}
	if err := l.end(137, 0, "note"); err == nil {
		t.Error("no error")
	}
	if _, _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Error(err) // readers must not wait for ever
	}
	r.Close()
}

func BenchmarkLog(b *testing.B) {
	l, err := createLog(filepath.Join(b.TempDir(), "l"), 1<<40)
	if err != nil {
		b.Fatal(err)
	}
	rec := bytes.Repeat(record(wire.RecordStdout, strings.Repeat("x", 8000)+"\n"), 8)
	r := l.reader()
	b.SetBytes(int64(len(rec)))
	for b.Loop() {
		if err := l.append(l.cursor(), rec); err != nil {
			b.Fatal(err)
		}
		for r.pos < l.whole || len(r.queue) > 0 {
			if _, _, err := r.Next(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	l.end(0, 0, "") //nolint:errcheck // the benchmark is over
	r.Close()
}
