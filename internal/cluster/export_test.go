package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CrowdSize is how many volumes a crowd has.
const CrowdSize = crowdSize

// Crowd returns a cache with many volumes, and LINSTOR's word on them.
func Crowd(t *testing.T) (client.Reader, labels.Selector, Linstor) {
	t.Helper()
	c, selector := crowdCache(t)
	return c, selector, wellOn{}
}
