package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
)

const measured = "../../../docs/benchmarks.json"

func figures(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(measured)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestThePictureTellsTheFigures(t *testing.T) {
	t.Parallel()
	in := `[{"key":"crash","figures":[
		{"what":"crash → Running, as shipped","unit":"s","n":3,"median":11.11,"worst":12.22},
		{"what":"crash → Running, confirmed grace off, that is as long as the others","unit":"s","n":3,"median":13,"worst":14},
		{"what":"crash → Running, unanimous grace off, that is as long as the confirmed one","unit":"s","n":3,"median":15,"worst":16},
		{"what":"crash → Running, fast detach off","unit":"s","n":3,"median":37,"worst":48},
		{"what":"crash → Running, keep-away off","unit":"s","n":3,"median":59,"worst":60}]},
		{"key":"steps","figures":[
		{"what":"DRBD: crash → a survivor may be promoted","unit":"s","median":9.01},
		{"what":"controller: grace, decision, taint → attachment marked","unit":"s","median":1.02},
		{"what":"controller: attachment marked → pod gone","unit":"s","median":0.03},
		{"what":"Kubernetes: pod gone → replacement created and placed","unit":"s","median":0.04},
		{"what":"controller, Kubernetes, attacher: placed → volume detached and attached here","unit":"s","median":0.25},
		{"what":"kubelet: attached → Running","unit":"s","median":0.76}]}]`
	var out bytes.Buffer
	if err := run(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"> 11.1 s (worst of 3: 12.2 s)<", "> 37.0 s (worst of 3: 48.0 s)<", ">as shipped<", ">keep-away off<",
		">DRBD notices, 9.01 s<", ">grace and decision, 1.02 s<", ">pod removed, 0.03 s<", ">Kubernetes places another, 0.04 s<", ">volume attached, 0.25 s<", ">start, 0.76 s<",
	} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the picture does not say %q", text)
		}
	}
}

func TestTheSameFiguresGiveTheSamePicture(t *testing.T) {
	t.Parallel()
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run(bytes.NewReader(figures(t)), out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two pictures of the same figures differ")
	}
}

// What measures the parts calls them so.
func TestThePartsAreThoseThatAreMeasured(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../testbed/bench/losses.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if !bytes.Contains(source, []byte(strconv.Quote(p.what))) {
			t.Errorf("the bench measures no %q", p.what)
		}
	}
}

func TestARowThatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	err := run(bytes.NewReader(bytes.ReplaceAll(figures(t), []byte("fast detach off"), []byte("slow detach"))), &bytes.Buffer{})
	if err == nil || !strings.HasPrefix(err.Error(), "crash, crash → Running, fast detach off: ") {
		t.Errorf("error %v", err)
	}
}
