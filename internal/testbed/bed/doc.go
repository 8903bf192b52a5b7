// Package bed brings up a cluster on the loopback interface of one machine, in which fail-over can
// be watched from end to end: a real etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
// CSI external-attacher, compiled from their Go modules; simulated kubelets; a simulated LINSTOR over a
// model of DRBD; and the real controller in three replicas, run as processes under the ServiceAccount,
// roles and arguments of the shipped manifest.
//
// Tests, `make demo` and `make playground` run on it. Start returns a Bed; its methods add nodes,
// deploy workloads, and break and mend things. A bed is made to be shared: a scenario takes nodes and
// a namespace of its own and pins its pods to them, and so leaves all others alone.
//
// Below it are kubelet, the simulated kubelets; controlplane, the module that compiles Kubernetes' programs; bedtest, which lets
// tests share a bed; scenarios, the tests that play on one; and oracle, which judges what the controller did there. What else is
// simulated is described in the models.
package bed
