package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress shows how far a long job is: one line that is drawn over on a
// terminal, and elsewhere a line for each new step and each further tenth.
// Safe for concurrent use.
type progress struct {
	w     io.Writer
	live  bool
	style styles

	mu     sync.Mutex
	step   string
	start  time.Time
	tenth  int
	drawn  time.Time
	active bool // a line without its end is on the terminal
}

func (a *app) newProgress() *progress {
	style := a.stylesFor(a.errOut)
	return &progress{w: a.errOut, live: isTerminal(a.errOut) && a.getenv("TERM") != "dumb", style: style}
}

// redraw is how often a line is drawn over at most.
const redraw = 80 * time.Millisecond

// update tells that step is at done of total; total 0 means nobody knows.
func (p *progress) update(step string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	fresh := step != p.step
	if fresh {
		p.finishStep(now)
		p.step, p.start, p.tenth = step, now, 0
	}
	if p.live {
		if fresh || now.Sub(p.drawn) >= redraw || (total > 0 && done >= total) {
			p.drawn, p.active = now, true
			fmt.Fprintf(p.w, "\r\033[K%s %s", p.step, p.bar(done, total))
		}
		return
	}
	if fresh {
		fmt.Fprintf(p.w, "%s\n", p.step)
	}
	if total > 0 {
		if tenth := int(done * 10 / total); tenth > p.tenth && tenth < 10 {
			p.tenth = tenth
			fmt.Fprintf(p.w, "%s: %d%% of %s\n", p.step, tenth*10, size(total))
		}
	}
}

func (p *progress) bar(done, total int64) string {
	if total <= 0 {
		if done > 0 {
			return p.style.dim(size(done))
		}
		return ""
	}
	const width = 24
	full := int(min(done, total) * width / total)
	return fmt.Sprintf("%s%s %3d%% %s", p.style.green(strings.Repeat("━", full)),
		p.style.dim(strings.Repeat("─", width-full)), min(done, total)*100/total, p.style.dim("of "+size(total)))
}

// finishStep closes the line of the step before.
func (p *progress) finishStep(now time.Time) {
	if !p.live || !p.active {
		return
	}
	p.active = false
	fmt.Fprintf(p.w, "\r\033[K%s %s\n", p.step, p.style.dim(now.Sub(p.start).Round(100*time.Millisecond).String()))
}

// done ends the display.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finishStep(time.Now())
	p.step = ""
}
