// Package leaderelection makes the Lease by which the replicas of the controller agree on a leader.
package leaderelection

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// identitySeparator stands before the random part of an identity. No name of a pod contains it.
const identitySeparator = "_"

// namespaceFile is where Kubernetes mounts the namespace of a pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// defaultNamespace is the one that deploy/all.yaml creates.
const defaultNamespace = "ha-controller"

// Lock returns the Lease of the name that the options give, with an identity that begins with the one they give and that no
// other process has, be it the next one of the same pod: that one would find itself the leader at once, though it has seen
// nothing of what goes on, while others have. It has a client of its own, so that no other request can delay a renewal. A leader that
// cannot renew it waits for one request more, to release it, and then ends: by the defaults 9.5 s after its last renewal, before
// another one may lead.
func Lock(opts options.Options, config *rest.Config) (*Lease, error) {
	lock, err := lockNamed(opts.LeaderElectionResourceName, opts, config)
	if err != nil {
		return nil, err
	}
	return Wrap(lock), nil
}

func lockNamed(name string, opts options.Options, config *rest.Config) (resourcelock.Interface, error) {
	namespace := Namespace(opts)
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	config.Timeout = opts.RenewDeadline / 2
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the Kubernetes API for the leader election: %w", err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, name,
		clients.CoreV1(), clients.CoordinationV1(), resourcelock.ResourceLockConfig{
			Identity: opts.LeaderElectionLeaseName + identitySeparator + string(uuid.NewUUID()),
		})
	if err != nil {
		return nil, fmt.Errorf("making Lease %s/%s: %w", namespace, name, err)
	}
	return lock, nil
}

// Namespace returns where the controller's own objects are: the namespace that the options give, else that of the pod,
// else the one of the shipped manifest.
func Namespace(opts options.Options) string {
	if opts.LeaderElectionNamespace != "" {
		return opts.LeaderElectionNamespace
	}
	namespace, err := os.ReadFile(namespaceFile)
	if err != nil {
		return defaultNamespace
	}
	return strings.TrimSpace(string(namespace))
}

// PodOf returns the name of the pod of an identity.
func PodOf(identity string) string {
	pod, _, _ := strings.Cut(identity, identitySeparator)
	return pod
}
