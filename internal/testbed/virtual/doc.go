// Package virtual is a small cluster inside one process and in virtual time: the model of the Kubernetes API
// (apimodel) with simulated kubelets, a scheduler, owners that re-create their pods and an attach/detach
// controller, over the simulated LINSTOR (linstorsim) and DRBD (drbd).
//
// It is made for testing/synctest bubbles: hours pass in milliseconds, and nothing opens a socket. What it does
// follows what was measured on a real control plane:
//
//   - A kubelet renews its Lease every 10 s and posts the node's status every second: that it is Ready, its boot, and volumesInUse.
//     It starts a pod once the status shows its volumes, they are attached, and the CSI driver has registered, 3 s after a boot. It
//     opens their devices, and stops pods gracefully, within 2 s at least. It does not shorten a stop that is under way. A process
//     whose IO hangs does not stop. A kubelet that is started again unmounts the volumes of deleted pods before it stops them.
//   - The attach/detach controller attaches a volume to one node only, waits for volumesInUse before it detaches, up
//     to six minutes, and finds out that somebody else deleted an attachment only every 60 s.
//   - The CSI attacher gives the driver (csidriver) a minute for each attach and detach, ten at a time, and lets one that has failed wait
//     a second, and twice as long each time. The driver speaks to LINSTOR by REST, as the real one does.
//   - A node whose Lease is 50 s old gets Kubernetes' own unreachable taints. Pods are not evicted by them: their
//     toleration of 300 s is longer than any story here.
//   - From a node that a person has tainted as out of service the taint eviction deletes the pods, by name; the garbage collector of pods
//     ends them every 20 s once the node is not ready; and their volumes are detached although the node reports them in use.
//   - On request there are a person who drains nodes by the Eviction API, and a linstor-affinity-controller, which replaces
//     PersistentVolumes that allow other nodes than those with a disk.
//   - Every owner keeps one pod of a given name, as a StatefulSet does.
//
// All components are level-triggered, look at the API through one view without a lag, and try again after a second.
package virtual
