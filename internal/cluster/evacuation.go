package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// AnnotationEvacuation on a node says how far its evacuation has got, for whoever leads next.
const AnnotationEvacuation = "piraeus.io/evacuation"

// Evacuations says what an evacuation wants to know of nodes and of the volumes on them.
type Evacuations struct {
	cache, live client.Reader
	readers     Readers
	kubelets    *Kubelets
	silence     time.Duration
	cluster     *atomic.Pointer[string] // its ID, once it was read
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// ID reads what tells this cluster from others that use the same LINSTOR. The reader must not be a cache.
func ID(ctx context.Context, api client.Reader) (string, error) {
	var system corev1.Namespace
	if err := api.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
		return "", fmt.Errorf("reading which cluster this is: %w", err)
	}
	return string(system.UID), nil
}

// Cluster returns the [ID] of this cluster.
func (e Evacuations) Cluster(ctx context.Context) (id string, err error) {
	if read := e.cluster.Load(); read != nil {
		return *read, nil
	}
	if id, err = ID(ctx, e.live); err != nil { // without a lock: a request that hangs must not delay other callers
		return "", err
	}
	e.cluster.Store(&id)
	return id, nil
}

// NewEvacuations returns a reader by a configuration.
func NewEvacuations(cfg Config) Evacuations {
	return Evacuations{cache: cfg.Cache, live: cfg.Live, readers: NewReaders(cfg), kubelets: cfg.Kubelets, silence: cfg.Settings.KubeletSilence, cluster: new(atomic.Pointer[string])}
}

// Nodes returns all nodes of Kubernetes, past the cache, whose watch may be dead, and with them what LINSTOR says of its satellites. self takes the
// place of the one of its name.
func (e Evacuations) Nodes(ctx context.Context, self *corev1.Node, satellites []linstor.Node) ([]evacuation.Node, error) {
	var list corev1.NodeList
	if err := e.live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	all := []evacuation.Node{e.node(self)}
	for i := range list.Items {
		if list.Items[i].Name != self.Name {
			all = append(all, e.node(&list.Items[i]))
		}
	}
	unknowTwins(all)
	for _, satellite := range satellites {
		i := slices.IndexFunc(all, func(n evacuation.Node) bool { return n.Satellite == satellite.Name })
		if i < 0 { // it is no node of Kubernetes, or not any more
			i = len(all)
			all = append(all, evacuation.Node{Satellite: satellite.Name})
		}
		n := &all[i]
		n.Listed, n.Evacuating, n.Evicted, n.Evacuator = satellite.Satellite, satellite.Evacuating, satellite.Leaving, satellite.Evacuator
		if word := satellite.Word(); word.Known {
			n.Online = evacuation.AnswerOf(&word.Value)
		}
	}
	return all, nil
}

// unknowTwins makes unknown which satellite a node is if another one claims the same: a kubelet writes the name that the CSI driver gave it.
func unknowTwins(nodes []evacuation.Node) {
	claims := make(map[string]int, len(nodes))
	for _, n := range nodes {
		claims[n.Satellite]++
	}
	for i := range nodes {
		if claims[nodes[i].Satellite] > 1 {
			nodes[i].Satellite = ""
		}
	}
}

// node is what Kubernetes says of a node.
func (e Evacuations) node(node *corev1.Node) evacuation.Node {
	n := evacuation.Node{
		Name: node.Name, Satellite: e.kubelets.Satellite(node.Name), Named: e.kubelets.isNamed(node.Name), Cordoned: node.Spec.Unschedulable,
		Going:     e.kubelets.isShutdown(node) || slices.ContainsFunc(node.Spec.Taints, isGoing),
		Repelling: slices.ContainsFunc(node.Spec.Taints, repels),
		Ready:     e.ready(node), Conditions: EvacuationConditions(node),
	}
	for _, t := range node.Spec.Taints {
		if t.Key == evacuation.TaintKey {
			n.Evacuate = append(n.Evacuate, evacuation.Taint{Value: t.Value, Effect: string(t.Effect)})
		}
	}
	if progress, ok := EvacuationProgress(node); ok {
		n.Since = progress.Since
	}
	return n
}

// autoscalers are the taints of nodes that cluster-autoscaler or Karpenter is about to delete.
var autoscalers = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"}

// deletionCandidate is the taint of a node that cluster-autoscaler may delete soon.
const deletionCandidate = "DeletionCandidateOfClusterAutoscaler"

// controlPlane are the taints of nodes that stay although they repel pods.
var controlPlane = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

// isGoing reports whether a taint means that its node is off for good, or about to be deleted.
func isGoing(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeOutOfService || slices.Contains(autoscalers, t.Key)
}

// repels reports whether a taint keeps new copies off its node. The controller cannot know what a taint of others announces.
func repels(t corev1.Taint) bool {
	return t.Key == deletionCandidate || t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(controlPlane, t.Key)
}

// ready is what Kubernetes says of a node's readiness. Of one whose kubelet is silent it says what was so before, for most of a minute.
func (e Evacuations) ready(node *corev1.Node) evacuation.Answer {
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		switch {
		case c.Status == corev1.ConditionFalse:
			return evacuation.No
		case c.Status == corev1.ConditionTrue && !e.kubelets.Node(node.Name).LeaseSilent(e.silence):
			return evacuation.Yes
		}
	}
	return evacuation.Unknown
}

// EvacuationProgress reads the annotation of a node; false where it has none. Of one that cannot be read nothing is known but that it is there.
func EvacuationProgress(node *corev1.Node) (evacuation.Progress, bool) {
	text, ok := node.Annotations[AnnotationEvacuation]
	if !ok {
		return evacuation.Progress{}, false
	}
	progress, err := evacuation.ParseProgress(text)
	if err != nil {
		return evacuation.Progress{}, true
	}
	return progress, true
}

// EvacuationConditions are the conditions of a node that an evacuation sets.
func EvacuationConditions(node *corev1.Node) evacuation.Conditions {
	return evacuation.Conditions{Safe: condition(node, evacuation.StorageSafe), Evacuated: condition(node, evacuation.StorageEvacuated)}
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *evacuation.Condition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return &evacuation.Condition{Status: evacuation.Status(c.Status), Reason: evacuation.Reason(c.Reason), Message: c.Message}
		}
	}
	return nil
}

// IsEvacuated reports whether an evacuation concerns a node: it has the taint, or something that an evacuation has left there.
func IsEvacuated(node *corev1.Node) bool {
	_, noted := node.Annotations[AnnotationEvacuation]
	conditions := EvacuationConditions(node)
	return noted || HasTaint(node, evacuation.TaintKey, "") || conditions.Safe != nil || conditions.Evacuated != nil
}

// Stage is how far a node has got that may be evacuated.
type Stage struct {
	// Evacuated is set while an evacuation concerns it, Leaves while its taint has everything leave it.
	Evacuated, Leaves bool
}

// Stages returns how far nodes have got, past the cache, by their names in LINSTOR.
func (e Evacuations) Stages(ctx context.Context) (map[string]Stage, error) {
	var list corev1.NodeList
	if err := e.live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	stages := make(map[string]Stage, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		name := e.kubelets.Satellite(node.Name)
		stage := stages[name] // of two that claim one name either counts
		stage.Evacuated = stage.Evacuated || IsEvacuated(node)
		stage.Leaves = stage.Leaves || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == evacuation.TaintKey && t.Value == string(evacuation.Everything)
		})
		stages[name] = stage
	}
	return stages, nil
}

// AttachmentsOn returns the PersistentVolumes of ours that are attached to a node, or about to be, past the cache.
func (e Evacuations) AttachmentsOn(ctx context.Context, node string) ([]string, error) {
	var list storagev1.VolumeAttachmentList
	if err := e.live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing VolumeAttachments: %w", err)
	}
	return e.attached(list.Items, node), nil
}

func (e Evacuations) attached(attachments []storagev1.VolumeAttachment, node string) []string {
	var volumes []string
	for i := range attachments {
		va := &attachments[i]
		if va.Spec.NodeName == node && e.readers.Attachments.Ours(va) {
			volumes = append(volumes, *va.Spec.Source.PersistentVolumeName)
		}
	}
	slices.Sort(volumes)
	return volumes
}

// Attached returns the PersistentVolumes of ours that are attached to a node by the cache, and of these one that is being failed over from
// there, empty where none is.
func (e Evacuations) Attached(ctx context.Context, node string) (volumes []string, failingOver string, err error) {
	attachments, err := e.readers.Attachments.On(ctx, node)
	if err != nil {
		return nil, "", err
	}
	for i := range attachments {
		if attachments[i].Annotations[AnnotationFailOver] != "" {
			failingOver = *attachments[i].Spec.Source.PersistentVolumeName
		}
	}
	return e.attached(attachments, node), failingOver, nil
}

// unclaimed are the phases of a PersistentVolume that is nobody's.
var unclaimed = []corev1.PersistentVolumePhase{corev1.VolumeAvailable, corev1.VolumeReleased, corev1.VolumeFailed}

// Unlisted returns the PersistentVolumes that LINSTOR should list and does not, such as after an older database was restored. These are, in this order: volumes
// attached to the node of which LINSTOR lists no replica there, or that Kubernetes does not have at the moment; and claimed volumes of which it lists no replica
// anywhere. A volume that was released or is being deleted may have gone from LINSTOR before.
func (e Evacuations) Unlisted(ctx context.Context, node string, listed []evacuation.Volume, attached []string) ([]string, error) {
	var list corev1.PersistentVolumeList
	if err := e.cache.List(ctx, &list, shared); err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	held, err := e.held(ctx, node)
	if err != nil {
		return nil, err
	}
	known, here := listedOn(e.kubelets.Satellite(node), listed)
	there := make(map[string]bool, len(list.Items))
	var unlisted, unused []string
	for i := range list.Items {
		pv := &list.Items[i]
		resource := e.readers.Volumes.Resource(pv)
		there[pv.Name] = resource != ""
		switch {
		case resource != "" && !here[strings.ToLower(resource)] && held[pv.Name] && !IsNFSExport(pv):
			unlisted = append(unlisted, pv.Name)
		case resource == "" || known[strings.ToLower(resource)]:
		case slices.Contains(attached, pv.Name):
			unlisted = append(unlisted, pv.Name)
		case pv.DeletionTimestamp == nil && !slices.Contains(unclaimed, pv.Status.Phase):
			unused = append(unused, pv.Name)
		}
	}
	for _, name := range attached {
		if !there[name] {
			unlisted = append(unlisted, name)
		}
	}
	slices.Sort(unlisted)
	slices.Sort(unused)
	return append(unlisted, unused...), nil
}

// listedOn returns which resources LINSTOR lists, by their names in lower case, and which of them on a node.
func listedOn(satellite string, listed []evacuation.Volume) (anywhere, here map[string]bool) {
	anywhere, here = make(map[string]bool, len(listed)), make(map[string]bool)
	for _, v := range listed {
		anywhere[strings.ToLower(v.Resource)] = true
		here[strings.ToLower(v.Resource)] = slices.ContainsFunc(v.Replicas, func(r evacuation.Replica) bool { return r.Node == satellite })
	}
	return anywhere, here
}

// held returns the PersistentVolumes that are attached to a node for certain, by the cache: the driver has made a replica there, and has not been told to
// take it away.
func (e Evacuations) held(ctx context.Context, node string) (map[string]bool, error) {
	attachments, err := e.readers.Attachments.On(ctx, node)
	if err != nil {
		return nil, err
	}
	volumes := make(map[string]bool)
	for i := range attachments {
		if va := &attachments[i]; va.Status.Attached && va.DeletionTimestamp == nil && e.readers.Attachments.Ours(va) {
			volumes[*va.Spec.Source.PersistentVolumeName] = true
		}
	}
	return volumes, nil
}

// Claims adds to volumes what Kubernetes says of those that have a replica on the node: which PersistentVolumes they are, which of them are
// attached there, and which could be used elsewhere. Of others it leaves out all but those on a node with the taint.
func (e Evacuations) Claims(
	ctx context.Context, self *corev1.Node, nodes []evacuation.Node, volumes []evacuation.Volume, attached []string,
) ([]evacuation.Volume, error) {
	satellite := e.kubelets.Satellite(self.Name)
	tainted := map[string]bool{satellite: true}
	for _, n := range nodes {
		if len(n.Evacuate) > 0 {
			tainted[n.Satellite] = true
		}
	}
	places, err := e.places(ctx, self.Name, nodes)
	if err != nil {
		return nil, err
	}
	volumes = slices.DeleteFunc(volumes, func(v evacuation.Volume) bool {
		return !slices.ContainsFunc(v.Replicas, func(r evacuation.Replica) bool { return tainted[r.Node] })
	})
	for i := range volumes {
		v := &volumes[i]
		if !slices.ContainsFunc(v.Replicas, func(r evacuation.Replica) bool { return r.Node == satellite }) {
			continue
		}
		if v.Claims, err = e.claims(ctx, v.Resource, places, attached); err != nil {
			return nil, err
		}
	}
	return volumes, nil
}

// places are the nodes other than N that could run a pod which leaves N.
func (e Evacuations) places(ctx context.Context, self string, nodes []evacuation.Node) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := e.cache.List(ctx, &list, shared); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	free := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		free[n.Name] = n.Name != self && n.Ready == evacuation.Yes && !n.Cordoned && !n.Going && len(n.Evacuate) == 0
	}
	var places []*corev1.Node
	for i := range list.Items {
		if free[list.Items[i].Name] {
			places = append(places, &list.Items[i])
		}
	}
	return places, nil
}

// claims are the PersistentVolumes of a resource.
func (e Evacuations) claims(ctx context.Context, resource string, places []*corev1.Node, attached []string) ([]evacuation.PersistentVolume, error) {
	names, err := e.readers.Volumes.OfResource(ctx, resource)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var claims []evacuation.PersistentVolume
	for _, name := range names {
		pv, err := e.readers.Volumes.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		if pv == nil {
			continue
		}
		claim := evacuation.PersistentVolume{Name: name, Attached: slices.Contains(attached, name), NFSExport: IsNFSExport(pv)}
		if claim.Elsewhere, err = allowsAny(pv, places); err != nil {
			return nil, err
		}
		if claim.Attached {
			if claim.Lost, err = e.readers.Live.isClaimLost(ctx, pv); err != nil {
				return nil, err
			}
		}
		claims = append(claims, claim)
	}
	return claims, nil
}

// allowsAny reports whether the node affinity of a volume allows one of the nodes.
func allowsAny(pv *corev1.PersistentVolume, nodes []*corev1.Node) (bool, error) {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return len(nodes) > 0, nil
	}
	selector, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	if err != nil {
		return false, fmt.Errorf("reading the node affinity of volume %s: %w", pv.Name, err)
	}
	return slices.ContainsFunc(nodes, selector.Match), nil
}

// Holders adds to volumes which pods on the node use them, past the cache, which has those only that are selected.
func (e Evacuations) Holders(ctx context.Context, node string, volumes []evacuation.Volume) error {
	pods, err := e.readers.Live.PodsOn(ctx, node)
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return Ended(&p) })
	for i := range volumes {
		for j := range volumes[i].Claims {
			claim := &volumes[i].Claims[j]
			if !claim.Attached {
				continue
			}
			pv, err := e.readers.Volumes.Get(ctx, claim.Name)
			if err != nil {
				return err
			}
			if pv == nil {
				continue
			}
			users, err := e.readers.Live.UsersOf(ctx, pv, pods)
			if err != nil {
				return err
			}
			for k := range users {
				claim.Holders = append(claim.Holders, Key(users[k].Namespace, users[k].Name))
			}
		}
	}
	return nil
}
