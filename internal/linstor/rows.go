package linstor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
	"time"
)

const (
	// rowsKept is how long a row is remembered at least that is not seen again, and at most for twice as long. Rows that are
	// read every second stay.
	rowsKept = 3 * time.Second
	// rowsBytes bounds the bytes of the rows that are taken up within rowsKept.
	rowsBytes = 12 << 20
)

// knownRows decodes rows of LINSTOR's answers. A row that was decoded a moment ago and has come again byte by byte is not
// decoded again: of what is read every second hardly anything changes, and decoding is most of the work. What is decoded is
// shared by all who get the same row, and must not be changed.
type knownRows struct {
	seed maphash.Seed
	// decoding is held while an answer is decoded: of several that come at once each would take a processor from events and
	// decisions.
	decoding sync.Mutex

	mu sync.Mutex
	// recent has the rows that were seen since the last turn, older those of the time before, by their hash.
	recent, older map[uint64]knownRow
	size          int // of recent, in bytes
	turning       bool
}

type knownRow struct {
	row   string
	value wireResource
}

func newKnownRows() *knownRows { return &knownRows{seed: maphash.MakeSeed()} }

// decodeList decodes a JSON list of resources.
func (k *knownRows) decodeList(body io.Reader) ([]wireResource, error) {
	document, _ := documents.Get().(*bytes.Buffer)
	defer documents.Put(document)
	document.Reset()
	if _, err := document.ReadFrom(body); err != nil {
		return nil, err
	}
	k.decoding.Lock()
	defer k.decoding.Unlock()
	var list []wireResource
	err := eachElement(document.Bytes(), func(row []byte) error {
		value, err := k.decode(row)
		list = append(list, value)
		return err
	})
	return list, err
}

// documents are buffers for whole answers.
var documents = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (k *knownRows) decode(row []byte) (wireResource, error) {
	hash := maphash.Bytes(k.seed, row)
	if known, ok := k.find(hash, row); ok {
		return known, nil
	}
	var value wireResource
	if err := json.Unmarshal(row, &value); err != nil {
		return wireResource{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keep(hash, knownRow{string(row), value})
	return value, nil
}

// find returns what the row was decoded to a moment ago.
func (k *knownRows) find(hash uint64, row []byte) (wireResource, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known, ok := k.recent[hash]; ok && known.row == string(row) {
		return known.value, true
	}
	known, ok := k.older[hash]
	if !ok || known.row != string(row) {
		return wireResource{}, false
	}
	k.keep(hash, known)
	return known.value, true
}

// keep remembers a row unless there are too many. The lock must be held.
func (k *knownRows) keep(hash uint64, known knownRow) {
	if k.size+len(known.row) > rowsBytes {
		return
	}
	if k.recent == nil {
		k.recent = map[uint64]knownRow{}
	}
	k.recent[hash] = known
	k.size += len(known.row)
	if !k.turning {
		k.turning = true
		time.AfterFunc(rowsKept, k.turn)
	}
}

// turn forgets the rows that were not seen since the last turn.
func (k *knownRows) turn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.older, k.recent, k.size = k.recent, nil, 0
	if k.turning = k.older != nil; k.turning {
		time.AfterFunc(rowsKept, k.turn)
	}
}

// eachElement calls each with the elements of a JSON list. Whether they are JSON is for each to tell: where they all are, so
// is the list.
func eachElement(document []byte, each func(element []byte) error) error {
	rest := trimSpace(document)
	if len(rest) == 0 || rest[0] != '[' {
		return errors.New("not a list")
	}
	rest = trimSpace(rest[1:])
	if len(rest) > 0 && rest[0] == ']' {
		return nil
	}
	for n := 0; ; n++ {
		end, err := elementEnd(rest)
		if err != nil {
			return err
		}
		if err := each(trimSpace(rest[:end])); err != nil {
			return fmt.Errorf("element %d: %w", n, err)
		}
		switch rest[end] {
		case ']':
			return nil
		case '}':
			return fmt.Errorf("element %d: a bracket that nothing opens", n)
		}
		rest = rest[end+1:]
	}
}

// elementEnd returns where the comma or bracket is that ends the element of a list.
func elementEnd(list []byte) (int, error) {
	depth := 0
	for i := 0; i < len(list); i++ {
		switch list[i] {
		case '"':
			for i++; i < len(list) && list[i] != '"'; i++ {
				if list[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i, nil
			}
			depth--
		case ',':
			if depth == 0 {
				return i, nil
			}
		}
	}
	return 0, io.ErrUnexpectedEOF // without its end the list is not complete
}

// trimSpace cuts off what JSON takes for space, and nothing else.
func trimSpace(document []byte) []byte { return bytes.Trim(document, " \t\r\n") }
