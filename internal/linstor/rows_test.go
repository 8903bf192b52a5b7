package linstor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// rowOf is a row as LINSTOR writes it.
func rowOf(t *testing.T, name string, score int) []byte {
	t.Helper()
	row, err := json.Marshal(resource(name, "node-a", false, score, true))
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// decoded decodes a row, and returns what tells one decoding from another.
func (k *knownRows) decoded(t *testing.T, row []byte) *wireDRBD {
	t.Helper()
	list, err := k.decodeList(bytes.NewReader(fmt.Appendf(nil, "[%s]", row)))
	if err != nil || len(list) != 1 || list[0].LayerObject.DRBD == nil {
		t.Fatalf("%s was read as %+v, %v", row, list, err)
	}
	return list[0].LayerObject.DRBD
}

// known returns how many rows are known, recent ones and older ones, and the bytes of the recent ones.
func (k *knownRows) known() (recent, older, size int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, known := range k.recent {
		size += len(known.row)
	}
	return len(k.recent), len(k.older), size
}

func TestOnlyARowThatIsTheSameByteByByteIsNotDecodedAgain(t *testing.T) {
	k := newKnownRows()
	row, other := rowOf(t, "PVC-1", 10102), rowOf(t, "PVC-1", 10101)
	first := k.decoded(t, row)
	if again := k.decoded(t, row); again != first {
		t.Error("the same row was decoded again")
	}
	if got := *k.decoded(t, other).PromotionScore; got != 10101 {
		t.Errorf("the score of another row is %d", got)
	}
	// Two rows of the same hash.
	third := rowOf(t, "PVC-1", 7)
	k.recent[maphash.Bytes(k.seed, third)] = knownRow{row: string(row), value: wireResource{}}
	if got := *k.decoded(t, third).PromotionScore; got != 7 {
		t.Errorf("the score of a row with the hash of another is %d", got)
	}
	k.older, k.recent = k.recent, nil
	k.older[maphash.Bytes(k.seed, row)] = knownRow{row: string(third), value: wireResource{}}
	if got := *k.decoded(t, row).PromotionScore; got != 10102 {
		t.Errorf("the score of a row with the hash of an older one is %d", got)
	}
}

func TestRowsAreKnownAsLongAsTheyAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnownRows()
		row, once := rowOf(t, "PVC-1", 10102), rowOf(t, "PVC-2", 10102)
		first := k.decoded(t, row)
		k.decoded(t, once)
		for range 10 {
			settle(time.Second)
			if k.decoded(t, row) != first {
				t.Fatal("a row that comes every second was decoded again")
			}
		}
		if recent, older, _ := k.known(); recent > 1 || older != 1 {
			t.Errorf("%d rows known, and %d of before, where one is left", recent, older)
		}
		settle(2 * rowsKept)
		if recent, older, _ := k.known(); recent+older > 0 {
			t.Errorf("%d rows known that nobody has seen for long", recent+older)
		}
		settle(rowsKept)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.turning {
			t.Error("a timer goes on although nothing is known")
		}
	})
}

func TestHowMuchOfRowsIsKnownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnownRows()
		var row bytes.Buffer
		for i := range 14 {
			row.Reset()
			fmt.Fprintf(&row, `{"name":"r%d","layer_object":{"drbd":{}},"props":{"filler":%q}}`, i, strings.Repeat("x", 1_000_000))
			k.decoded(t, row.Bytes())
		}
		if _, _, size := k.known(); size > rowsBytes || size < rowsBytes-1_100_000 {
			t.Errorf("%d bytes of rows are known", size)
		}
		settle(rowsKept + time.Second)
		if first := k.decoded(t, row.Bytes()); k.decoded(t, row.Bytes()) != first {
			t.Error("after the others are forgotten a row is not known")
		}
	})
}

func TestAListReadsTheSameWhereItsRowsAreKnown(t *testing.T) {
	for _, document := range []string{
		``, ` `, `{}`, `null`, `"[]"`, `[`, `[]`, " [\t\r\n] ", `[]]`, `[] x`, `]`, `[,]`, `[{},]`, `[,{}]`, `[{}}`, `[1}2]`, `[{}}{}]`, `[{]`, `[{]}]`, `[[}]]`,
		`[{}`, `[{},`, `[{} {}]`, `[{},{}]`, "[\n{ } ,\t{}\r]", `[null]`, `[null,{}]`, `[7]`, `["a"]`, `[{"name":"a"}`, `[{"name":"a}]`, `[{"name":"a\"]`,
		`[{"name":"],["},{"name":"\"}{\\"},{"name":"\\"}]`, "[\u00a0{}]", "\ufeff[]", `[{"name":7}]`, `[{"name":"ä"}]`, "[{\"name\":\"a\xff\"}]", "[{\"name\":\"a\nb\"}]",
	} {
		t.Run(document, func(t *testing.T) { sameFromKnownRows(t, []byte(document)) })
	}
}
