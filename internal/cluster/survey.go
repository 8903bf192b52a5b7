package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Use is one volume of ours as one selected pod uses it.
type Use struct {
	// Namespace and Pod name the pod, Claim its PersistentVolumeClaim.
	Namespace, Pod, Claim string
	// Volume is the PersistentVolume, empty while the claim is not bound to one.
	Volume string
	// Anywhere is set if the volume's node affinity rules no node out.
	Anywhere bool
	// Input is what is known of the volume on the pod's node. Its node has no name while the pod is not bound.
	Input failover.Input
}

// Survey looks at every selected pod, whatever its state, to say what would become of it. It reads, and changes nothing.
type Survey struct {
	readers  Readers
	cache    client.Reader
	kubelets *Kubelets
	// neighbours are all pods; nil if they are not known.
	neighbours *Neighbours
}

// NewSurvey returns a survey by a configuration, of which it needs nothing that is live. Where the cache holds pods that are not selected
// too, the survey sees those that share a volume with a selected one.
func NewSurvey(cfg Config) *Survey {
	return &Survey{readers: NewReaders(cfg), cache: cfg.Cache, kubelets: cfg.Kubelets, neighbours: cfg.Neighbours}
}

// Uses returns the volumes of ours of all selected pods of a namespace, or of all with an empty one, sorted by pod and
// claim. Pods that have ended are left out. Idle are the selected pods, as "namespace/name", that use no volume
// of ours at all.
func (s *Survey) Uses(ctx context.Context, namespace string) (uses []Use, idle []string, err error) {
	err = s.Each(ctx, namespace, func(pod *corev1.Pod, found []Use) {
		uses = append(uses, found...)
		if len(found) == 0 {
			idle = append(idle, Key(pod.Namespace, pod.Name))
		}
	})
	if err != nil {
		return nil, nil, err
	}
	sortUses(uses)
	slices.Sort(idle)
	return uses, idle, nil
}

// Each visits all selected pods of a namespace, or of all, with the volumes of ours that each uses, and the helpers of these pods that
// the cache has. Of thousands it holds one at a time; the pods are the cache's own.
func (s *Survey) Each(ctx context.Context, namespace string, visit func(*corev1.Pod, []Use)) error {
	var pods corev1.PodList
	if err := s.cache.List(ctx, &pods, client.InNamespace(namespace), shared); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	nodes, err := s.nodes(ctx)
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if Ended(pod) {
			continue
		}
		visited, helps, err := s.visits(ctx, pod)
		if err != nil {
			return err
		}
		if !visited {
			continue
		}
		uses, err := s.usesOf(ctx, nodes, pod)
		if err != nil {
			return err
		}
		if len(uses) > 0 || !helps {
			visit(pod, uses)
		}
	}
	return nil
}

// Strangers returns the volumes of ours of the pods on a node that Each does not visit, because nobody has selected them, sorted by pod
// and claim. Only a cache that holds all pods has them.
func (s *Survey) Strangers(ctx context.Context, namespace, node string) ([]Use, error) {
	var pods corev1.PodList
	if err := s.cache.List(ctx, &pods, client.InNamespace(namespace), shared); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	nodes, err := s.nodes(ctx)
	if err != nil {
		return nil, err
	}
	var all []Use
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName != node || Ended(pod) {
			continue
		}
		visited, _, err := s.visits(ctx, pod)
		if err != nil {
			return nil, err
		}
		if visited {
			continue
		}
		uses, err := s.usesOf(ctx, nodes, pod)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(uses, func(u Use) bool { return u.Volume == "" })...)
	}
	sortUses(all)
	return all, nil
}

// visits reports whether Each visits a pod: it is selected, or it helps one that is.
func (s *Survey) visits(ctx context.Context, pod *corev1.Pod) (visited, helps bool, err error) {
	if s.readers.Pods.selected(pod) {
		return true, false, nil
	}
	owner, err := s.readers.Pods.MissedBy(ctx, pod)
	return owner != nil, owner != nil, err
}

// usesOf returns the volumes of ours that a pod uses.
func (s *Survey) usesOf(ctx context.Context, nodes []corev1.Node, pod *corev1.Pod) ([]Use, error) {
	var uses []Use
	for _, claim := range ClaimsOf(pod) {
		use, ok, err := s.use(ctx, nodes, pod, claim)
		if err != nil {
			return nil, err
		}
		if ok {
			uses = append(uses, use)
		}
	}
	return uses, nil
}

func sortUses(uses []Use) {
	slices.SortFunc(uses, func(a, b Use) int {
		return slices.Compare([]string{a.Namespace, a.Pod, a.Claim}, []string{b.Namespace, b.Pod, b.Claim})
	})
}

// use returns one claim of a pod, unless its volume is of another driver.
func (s *Survey) use(ctx context.Context, nodes []corev1.Node, pod *corev1.Pod, claim string) (Use, bool, error) {
	use := Use{Namespace: pod.Namespace, Pod: pod.Name, Claim: strings.TrimPrefix(claim, pod.Namespace+"/")}
	bound, err := s.readers.Volumes.OfClaim(ctx, claim)
	if err != nil {
		return Use{}, false, fmt.Errorf("finding the volume of claim %s: %w", claim, err)
	}
	if len(bound) == 0 {
		return use, true, nil
	}
	pv := bound[0]
	if s.readers.Volumes.Resource(pv) == "" {
		return Use{}, false, nil
	}
	use.Volume, use.Anywhere = pv.Name, pv.Spec.NodeAffinity == nil
	if use.Input, err = s.inputOn(ctx, nodes, pv, pod.Spec.NodeName); err != nil {
		return Use{}, false, fmt.Errorf("gathering what is known of volume %s: %w", pv.Name, err)
	}
	return use, true, nil
}

// inputOn returns what is known of a volume on a node, and where else the nodes could run its pods.
func (s *Survey) inputOn(ctx context.Context, nodes []corev1.Node, pv *corev1.PersistentVolume, node string) (failover.Input, error) {
	pods, attachments, err := s.readers.Inputs.users(ctx, pv)
	if err != nil {
		return failover.Input{}, err
	}
	inputs, present := &s.readers.Inputs, onNode(pods, node)
	claims, err := s.readers.Volumes.claims(ctx, pv)
	if err != nil {
		return failover.Input{}, err
	}
	in, err := inputs.input(ctx, pv, claims, node, present, inputs.attachment(attachments, pods, node, Remembered{}), nil, Remembered{})
	if err != nil {
		return failover.Input{}, err
	}
	for i := range in.Pods {
		volumes, err := s.placedVolumes(ctx, pv, in.Resource, &present[i], in.Pods[i].Others)
		if err != nil {
			return failover.Input{}, err
		}
		in.Pods[i].Places = s.places(ctx, nodes, volumes, &present[i])
	}
	if inputs.Linstor.Status().Connected {
		// What has not changed is not confirmed every few seconds; it would be before anything is done.
		in.LinstorConfirmed = in.Now
	}
	return in, nil
}
