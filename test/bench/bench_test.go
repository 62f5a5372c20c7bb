package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestPercentile(t *testing.T) {
	samples := []float64{5, 1, 4, 2, 3}
	s := summarize("row", samples)
	if s.N != 5 || s.Min != 1 || s.P50 != 3 || s.P95 != 5 {
		t.Errorf("summary of %v is %+v", samples, s)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	if s := summarize("row", hundred); s.P50 != 50 || s.P95 != 95 {
		t.Errorf("of 1 to 100 the median is %v and the 95th percentile %v", s.P50, s.P95)
	}
	if s := summarize("row", []float64{7}); s.P50 != 7 || s.P95 != 7 {
		t.Errorf("one sample: %+v", s)
	}
}

func TestAims(t *testing.T) {
	r := result{Title: "job", Unit: "ms", Rows: []summary{{Name: "ours", P50: 10}, {Name: "theirs", P50: 50}}, aims: []aim{
		{row: "ours", most: 10},
		{row: "ours", most: 9},
		{row: "ours", most: 0.2, over: "theirs"},
		{row: "ours", most: 0.1, over: "theirs"},
		{row: "ours", most: 1, over: "somebody who is left out"},
		{row: "nobody", most: 1},
	}}
	var met []bool
	for _, v := range r.judge() {
		met = append(met, v.Met)
	}
	if want := []bool{true, false, true, false}; !slices.Equal(met, want) {
		t.Errorf("aims met: %v, want %v", met, want)
	}
}

func TestScopeUndoesInReverse(t *testing.T) {
	var s scope
	var order []string
	for _, step := range []string{"first", "second"} {
		s.onClose(func() error { order = append(order, step); return nil })
	}
	for range 2 { // the second time there is nothing to undo
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(order, " ") != "second first" {
		t.Errorf("undone: %v", order)
	}
}

// TestRunLeavesOutTheWarmUp and samples every contender equally often.
func TestRunLeavesOutTheWarmUp(t *testing.T) {
	calls := map[string]int{}
	b := bench{name: "b", title: "b", unit: "ms", rounds: times(3), open: func(context.Context, *rig, *scope) ([]contender, error) {
		var out []contender
		for _, name := range []string{"one", "two"} {
			out = append(out, contender{rows: []string{name, "share"}, sample: func(_ context.Context, put func(string, float64)) error {
				calls[name]++
				put(name, float64(calls[name]))
				put("share", 1)
				return nil
			}})
		}
		return out, nil
	}}
	res, err := b.run(t.Context(), &rig{opts: options{n: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if calls["one"] != 7 || calls["two"] != 7 {
		t.Errorf("calls %v, want 7 each", calls)
	}
	if len(res.Rows) != 4 || res.Rows[0].N != 6 || res.Rows[0].Min != 2 || res.Rows[1].N != 6 {
		t.Errorf("rows %+v", res.Rows)
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"-n", "0"}, {"-run", "("}, {"more"}, {"-unknown"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
	o, err := parse([]string{"-n", "3", "--json", "-run", "^exec$"})
	if err != nil || o.n != 3 || !o.asJSON || !o.only.MatchString("exec") {
		t.Errorf("options %+v, %v", o, err)
	}
}

func TestJSONIsReadable(t *testing.T) {
	rep := report{Results: []result{{Name: "b", Unit: "ms", Rows: []summary{summarize("row", []float64{1, 2})}}}}
	rep.finish()
	var text strings.Builder
	if err := rep.writeJSON(&text); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Results []struct {
			Rows []struct{ Samples []float64 }
		}
	}
	if err := json.Unmarshal([]byte(text.String()), &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Results) != 1 || len(back.Results[0].Rows[0].Samples) != 2 {
		t.Errorf("JSON lost something: %s", text.String())
	}
}
