package controllers

import (
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// byVolume is what is remembered of volumes, by volume and by node. Of a volume of which nothing is left it has no entry.
type byVolume[T any] map[string]map[string]T

func (b byVolume[T]) put(volume, node string, value T) {
	if b[volume] == nil {
		b[volume] = make(map[string]T, 1)
	}
	b[volume][node] = value
}

func (b byVolume[T]) remove(volume, node string) {
	delete(b[volume], node)
	if len(b[volume]) == 0 {
		delete(b, volume)
	}
}

// prune removes every node of the volume that is not among the inputs.
func (b byVolume[T]) prune(volume string, inputs []failover.Input) {
	for node := range b[volume] {
		if !slices.ContainsFunc(inputs, func(in failover.Input) bool { return in.Node.Name == node }) {
			delete(b[volume], node)
		}
	}
	if len(b[volume]) == 0 {
		delete(b, volume)
	}
}
