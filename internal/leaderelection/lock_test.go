package leaderelection_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/leaderelection"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// A process that follows another one in the same pod must not take over that one's leadership: it has no memory, and the
// other replicas have.
func TestNoProcessHasTheIdentityOfAnother(t *testing.T) {
	opts := options.Options{
		LeaderElectionLeaseName: "ha-controller-0", LeaderElectionResourceName: "lease", LeaderElectionNamespace: "default",
		RenewDeadline: 7 * time.Second,
	}
	var identities [2]string
	for i := range identities {
		lock, err := leaderelection.Lock(opts, &rest.Config{Host: "127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		identities[i] = lock.Identity()
		if name, _, _ := strings.Cut(identities[i], "_"); name != "ha-controller-0" {
			t.Errorf("identity %q does not say whose it is", identities[i])
		}
	}
	if identities[0] == identities[1] {
		t.Errorf("two processes have the identity %q", identities[0])
	}
}
