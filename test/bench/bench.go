package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// benches are all subjects, in the order of their files' names.
var benches []bench

func add(b bench) { benches = append(benches, b) }

// bench is one job that several contenders do in turn.
type bench struct {
	name  string // for -run
	title string
	unit  string // "ms" or "MB"
	// rounds is how often each contender is sampled when -n says n.
	rounds func(n int) int
	// open prepares the contenders; s undoes it.
	open func(ctx context.Context, r *rig, s *scope) ([]contender, error)
	// aims are held against the results and printed at the end.
	aims []aim
}

// contender does the job once per sample.
type contender struct {
	// rows name what is measured; the first row of a bench's first contender
	// is what the ratios refer to. Names are unique within a contender.
	rows []string
	// sample puts one or more values into each row.
	sample func(ctx context.Context, put func(row string, value float64)) error
}

// aim bounds a row's median: from above by most or, if over is set, by the
// share most of the row over.
type aim struct {
	row  string
	most float64
	over string
}

// times multiplies the number of rounds.
func times(k int) func(int) int { return func(n int) int { return k * n } }

// part divides it.
func part(k int) func(int) int { return func(n int) int { return max(1, n/k) } }

// timed makes a contender of a job whose whole duration counts.
func timed(row string, job func(ctx context.Context) error) contender {
	return contender{rows: []string{row}, sample: func(ctx context.Context, put func(string, float64)) error {
		start := time.Now()
		err := job(ctx)
		put(row, millis(time.Since(start)))
		return err
	}}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// run samples the contenders, in a new random order each round, after a round
// that is not counted.
func (b bench) run(ctx context.Context, r *rig) (_ result, err error) {
	s := &scope{}
	defer func() { err = errors.Join(err, s.close()) }()
	contenders, err := b.open(ctx, r, s)
	if err != nil {
		return result{}, err
	}
	res := result{Name: b.name, Title: b.title, Unit: b.unit, aims: b.aims}
	type place struct {
		contender int
		row       string
	}
	samples := map[place][]float64{}
	for round := range b.rounds(r.opts.n) + 1 {
		for _, i := range rand.Perm(len(contenders)) {
			if err := r.settle(ctx); err != nil {
				return result{}, err
			}
			err := contenders[i].sample(ctx, func(row string, value float64) {
				if round > 0 {
					samples[place{i, row}] = append(samples[place{i, row}], value)
				}
			})
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", contenders[i].rows[0], err)
			}
		}
	}
	for i, c := range contenders {
		for _, row := range c.rows {
			res.Rows = append(res.Rows, summarize(row, samples[place{i, row}]))
		}
	}
	res.Load = loadAverage()
	return res, nil
}

// scope undoes what was built in steps, in reverse.
type scope struct{ undo []func() error }

func (s *scope) onClose(f func() error) { s.undo = append(s.undo, f) }

func (s *scope) close() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	return errors.Join(errs...)
}
