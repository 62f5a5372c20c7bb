package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// styles colours text, or leaves it as it is where colours have no place.
type styles struct{ on bool }

// stylesFor: colours only on a terminal, never with NO_COLOR or a dumb one.
func (a *app) stylesFor(w io.Writer) styles {
	return styles{on: isTerminal(w) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"}
}

func (s styles) wrap(code, text string) string {
	if !s.on {
		return text
	}
	return "\033[" + code + "m" + text + "\033[0m"
}

func (s styles) red(t string) string    { return s.wrap("31", t) }
func (s styles) green(t string) string  { return s.wrap("32", t) }
func (s styles) yellow(t string) string { return s.wrap("33", t) }
func (s styles) dim(t string) string    { return s.wrap("2", t) }
func (s styles) bold(t string) string   { return s.wrap("1", t) }

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table prints aligned columns. Cells come from elsewhere (names, images), so
// control characters in them are shown, not obeyed.
func (a *app) table(header []string, rows [][]string) {
	style := a.stylesFor(a.out)
	widths := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i := range row {
			row[i] = printable(row[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	line := func(row []string, paint func(string) string) {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		fmt.Fprintln(a.out, paint(strings.TrimRight(b.String(), " ")))
	}
	line(header, style.bold)
	for _, row := range rows {
		line(row, func(s string) string { return s })
	}
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// size in binary units, as memory and disks of sandboxes are given.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, exp := float64(n)/unit, 0
	for v >= unit && exp < 4 {
		v /= unit
		exp++
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[exp])
}

// ago tells how long before now a time was, in its largest unit.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := now.Sub(t)
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

func millis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
