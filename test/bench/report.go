package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// report is what a run found.
type report struct {
	Machine machine   `json:"machine"`
	Rounds  int       `json:"rounds"`
	Results []result  `json:"results"`
	Aims    []verdict `json:"aims"`
}

// result of one bench.
type result struct {
	Name  string    `json:"name"`
	Title string    `json:"title"`
	Unit  string    `json:"unit"`
	Load  float64   `json:"loadAverageAfter"`
	Rows  []summary `json:"rows"`
	aims  []aim
}

// summary of one row's samples, in the result's unit.
type summary struct {
	Name    string    `json:"name"`
	N       int       `json:"n"`
	Min     float64   `json:"min"`
	P50     float64   `json:"p50"`
	P95     float64   `json:"p95"`
	Samples []float64 `json:"samples"`
}

// verdict on one aim.
type verdict struct {
	Text string `json:"text"`
	Met  bool   `json:"met"`
}

func summarize(name string, samples []float64) summary {
	sorted := slices.Sorted(slices.Values(samples))
	return summary{
		Name: name, N: len(sorted), Min: sorted[0],
		P50: percentile(sorted, 0.50), P95: percentile(sorted, 0.95), Samples: samples,
	}
}

// percentile is the smallest sample that the share p of all do not exceed.
func percentile(sorted []float64, p float64) float64 {
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

func (r result) row(name string) (summary, bool) {
	i := slices.IndexFunc(r.Rows, func(s summary) bool { return s.Name == name })
	if i < 0 {
		return summary{}, false
	}
	return r.Rows[i], true
}

// judge holds the results against the aims; one whose rows are not there is
// left out.
func (r result) judge() []verdict {
	var out []verdict
	for _, a := range r.aims {
		got, ok := r.row(a.row)
		if !ok {
			continue
		}
		if a.over == "" {
			out = append(out, verdict{fmt.Sprintf("%s, %s: p50 %.1f %s, at most %g %s", r.Title, a.row, got.P50, r.Unit, a.most, r.Unit), got.P50 <= a.most})
			continue
		}
		over, ok := r.row(a.over)
		if !ok {
			continue
		}
		share := got.P50 / over.P50
		out = append(out, verdict{fmt.Sprintf("%s, %s: %.3f of %s, at most %g", r.Title, a.row, share, a.over, a.most), share <= a.most})
	}
	return out
}

func (r *report) finish() {
	r.Machine.LoadAfter = loadAverage()
	r.Aims = []verdict{}
	for _, res := range r.Results {
		r.Aims = append(r.Aims, res.judge()...)
	}
}

func (r report) writeJSON(out io.Writer) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

func (r report) writeHeader(out io.Writer) {
	m := r.Machine
	fmt.Fprintf(out, "%s\n%d × %s, %s memory, Linux %s, cgroup %s, %s\n", m.Date, m.CPUs, m.CPU, m.Memory, m.Kernel, m.Cgroup, m.KVM)
	fmt.Fprintf(out, "load average at the start %.2f; %d rounds\n", m.LoadBefore, r.Rounds)
	for _, v := range m.Programs {
		fmt.Fprintln(out, v)
	}
	for _, v := range m.LeftOut {
		fmt.Fprintln(out, "left out:", v)
	}
	fmt.Fprintln(out, "ratio: p50 over that of the first row")
}

// write prints a result as a table.
func (r result) write(out io.Writer) {
	fmt.Fprintf(out, "\n%s, %s (load %.1f)\n", r.Title, r.Unit, r.Load)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "n\tmin\tp50\tp95\tratio\t\n")
	for _, s := range r.Rows {
		fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%.1f\t%.2f\t  %s\n", s.N, s.Min, s.P50, s.P95, s.P50/r.Rows[0].P50, s.Name)
	}
	_ = w.Flush() // of out, whose errors are not looked at
}

func (r report) writeFooter(out io.Writer) {
	fmt.Fprintf(out, "\nload average at the end %.2f\n", r.Machine.LoadAfter)
	for _, v := range r.Aims {
		word := "missed"
		if v.Met {
			word = "met"
		}
		fmt.Fprintf(out, "aim %s: %s\n", word, v.Text)
	}
}
