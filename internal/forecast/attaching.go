package forecast

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// Attaching is what is known of how volumes are attached.
type Attaching struct {
	// Unanswering are the nodes that are ONLINE and do not answer LINSTOR.
	Unanswering []string
	// Detaching are the attachments that Kubernetes has deleted and that wait for the CSI attacher, with its error.
	Detaching []string
	// Drivers are the pods of the CSI controller.
	Drivers []Driver
	// Nodes are the satellites on which pods can use volumes.
	Nodes []linstor.Node
}

// Driver is one pod of the CSI controller.
type Driver struct {
	// Pod is its "namespace/name".
	Pod string
	// Version is the tag of the driver's image; empty where it is none of a release.
	Version string
	// NodeCache is the driver's --node-cache-timeout, AttacherTimeout the attacher's --timeout; zero where the container is not there.
	NodeCache, AttacherTimeout time.Duration
}

const (
	// defaultNodeCache is linstor-csi's default, advisedNodeCache what is advised in its place: about as long as LINSTOR takes to notice.
	defaultNodeCache = time.Minute
	advisedNodeCache = 5 * time.Second
	// attacherTimeout is the external-attacher's default, and advised where it was raised.
	attacherTimeout = 15 * time.Second
)

// Names of images of the CSI controller.
var (
	driverImages   = []string{"piraeus-csi", "linstor-csi"}
	attacherImages = []string{"csi-attacher"}
)

// firstGoodDriver is the version of the driver from which on it lets go of what is in use on a node that lives.
var firstGoodDriver = [2]int{1, 12}

// strays collects volumes whose pods may land where no replica is, as "resource: node, node", and those of which such a node takes no new replica.
type strays struct{ remote, noTarget names }

func (s strays) add(use cluster.Use, nodes []linstor.Node) {
	if !use.Anywhere || !use.Input.Resource.Known || use.Input.Volume.NFSExport {
		return
	}
	var remote, noTarget []string
	for _, node := range nodes {
		replica, ok := use.Input.Resource.Replica(node.Name)
		switch {
		case ok && !replica.Gone:
		case use.Input.Resource.Attachable(node.Name, node.NoTarget):
			remote = append(remote, node.Name)
		default:
			noTarget = append(noTarget, node.Name)
		}
	}
	if len(remote) > 0 {
		s.remote[use.Input.Resource.Name+": "+firstOf(remote)] = true
	}
	if len(noTarget) > 0 {
		s.noTarget[use.Input.Resource.Name+": "+firstOf(noTarget)] = true
	}
}

// namedFirst is how many nodes a finding names of one volume, or pods of one node.
const namedFirst = 3

// firstOf names the first few of many names, and counts the others.
func firstOf(names []string) string {
	if len(names) > namedFirst {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedFirst], ", "), len(names)-namedFirst)
	}
	return strings.Join(names, ", ")
}

// DriverOf reads the images and arguments of a pod of the CSI controller.
func DriverOf(pod *corev1.Pod) Driver {
	d := Driver{Pod: pod.Namespace + "/" + pod.Name}
	for _, c := range pod.Spec.Containers {
		switch name := cluster.ImageName(c.Image); {
		case slices.Contains(driverImages, name):
			d.Version = imageTag(c.Image)
			d.NodeCache = durationOf(c, "node-cache-timeout", defaultNodeCache)
		case slices.Contains(attacherImages, name):
			d.AttacherTimeout = durationOf(c, "timeout", attacherTimeout)
		}
	}
	return d
}

// imageTag returns the tag of an image; empty where it has none.
func imageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return tag
}

// durationOf returns the value of a flag of a container, which may be written in four ways.
func durationOf(c corev1.Container, flag string, otherwise time.Duration) time.Duration {
	words := slices.Concat(c.Command, c.Args)
	for i, word := range words {
		name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !strings.HasPrefix(word, "-") || name != flag {
			continue
		}
		if !given && i+1 < len(words) {
			value = words[i+1]
		}
		if d, err := time.ParseDuration(value); err == nil {
			return d
		}
	}
	return otherwise
}

// olderThan tells whether a version such as "v1.10.6" is older; what is no version is not.
func olderThan(version string, other [2]int) bool {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(strings.SplitN(parts[1], "-", 2)[0])
	return err == nil && slices.Compare([]int{major, minor}, other[:]) < 0
}

// attachments tells what attaching waits for, or would.
func attachments(a Attaching, s strays) []Finding {
	late := Finding{
		Severity: Error, Code: AttachWaits, Objects: a.Unanswering,
		Message: "attaching waits: LINSTOR calls these nodes ONLINE and they do not answer it, so that no volume can be attached or detached",
		Remedy:  filled("linstor node reconnect NODE ends it at once; then look at what hangs there, such as lvs", "NODE", a.Unanswering),
	}
	detaching := Finding{
		Severity: Warning, Code: DetachWaits, Objects: a.Detaching,
		Message: "Kubernetes has let go of these volumes, and the CSI attacher has not detached them for a minute: they cannot be attached elsewhere",
		Remedy:  "see to the error; if there is none, look whether the CSI controller runs, and at the log of its csi-attacher",
	}
	old := Finding{
		Severity: Warning, Code: OldDriver,
		Message: "the CSI driver is older than 1.12: it cannot detach a volume from a node that lives, has no disk of it and has lost DRBD's network",
		Remedy:  "upgrade Piraeus, or the image of the CSI driver; meanwhile switch such a node off",
	}
	cache := Finding{
		Severity: Info, Code: NodeCacheTimeout,
		Message: "the CSI driver keeps for long what it has read of nodes: one that was not ONLINE then gets no volume for that time after it is back",
		Remedy:  "give the CSI driver of the CSI controller --node-cache-timeout=" + advisedNodeCache.String(),
	}
	stray := Finding{
		Severity: Info, Code: RemoteAccess, Objects: s.remote.sorted(),
		Message: "pods may land where no replica of their volume is: attaching it there takes 45 to 61 seconds while another node of the volume hangs",
		Remedy: "keep pods where replicas are, by allowRemoteVolumeAccess: \"false\" in the StorageClass or by their affinity; or give the CSI attacher " +
			"--timeout=" + attacherTimeout.String(),
	}
	closed := Finding{
		Severity: Warning, Code: NoAutoplaceTarget, Objects: s.noTarget.sorted(),
		Message: "pods may land where no replica of their volume is and LINSTOR places none, by the node's property AutoplaceTarget: the volume is never attached there",
		Remedy:  "keep these pods off these nodes by their affinity, or: linstor node set-property NODE AutoplaceTarget True",
	}
	quick := len(a.Drivers) > 0
	for _, d := range a.Drivers {
		if olderThan(d.Version, firstGoodDriver) {
			old.Objects = append(old.Objects, d.Pod+": "+d.Version)
		}
		if d.NodeCache > advisedNodeCache {
			cache.Objects = append(cache.Objects, fmt.Sprintf("%s: %s", d.Pod, d.NodeCache))
		}
		quick = quick && d.AttacherTimeout > 0 && d.AttacherTimeout <= attacherTimeout
	}
	if quick {
		stray.Objects = nil
	}
	return withObjects(late, detaching, old, closed, cache, stray)
}
