// Package bed brings up a cluster on the loopback interface of one machine, in which fail-over can
// be watched from end to end: a real etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// kubelets and CSI external-attacher, compiled from their Go modules; a simulated LINSTOR over a model of DRBD; and the real controller in three replicas, run as processes under the ServiceAccount,
// roles and arguments of the shipped manifest.
//
// Tests, `make demo` and `make playground` run on it. Start returns a Bed; its methods add nodes,
// deploy workloads, and break and mend things. A bed is made to be shared: a scenario takes nodes and
// a namespace of its own and pins its pods to them, and so leaves all others alone.
//
// A kubelet is a process without privileges. Its container runtime and its CSI driver are simulated, in the process of the bed; see
// machine. Raw block volumes are shown to it as file systems, because their devices need root.
//
// Below it are machine; controlplane, the module that compiles Kubernetes' programs; bedtest, which lets
// tests share a bed; scenarios, the tests that play on one; and oracle, which judges what the controller did there. What else is
// simulated is described in the models.
package bed
