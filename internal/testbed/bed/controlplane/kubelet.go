package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
	"k8s.io/kubernetes/pkg/util/taints"
)

// machine says what cAdvisor would say.
type machine struct {
	cadvisortest.Fake
	name, boot string
}

// MachineInfo describes the machine.
func (m *machine) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{
		NumCores: 64, MemoryCapacity: 256 << 30, MachineID: m.name, SystemUUID: m.name, BootID: m.boot,
	}, nil
}

// kubelet runs Kubernetes' kubelet without root, cgroups and containerd. These are real: registration, node status, Lease, pod workers,
// volume manager, CSI plugin, probes, static pods, the end of pods before a shutdown. These are not: cAdvisor, the container manager,
// mount(2), raw block devices. The container runtime and the CSI driver are behind sockets, so they outlive the kubelet.
func kubelet(args []string) error {
	flags := flag.NewFlagSet("kubelet", flag.ExitOnError)
	var (
		name       = flags.String("name", "", "name of the node")
		kubeconfig = flags.String("kubeconfig", "", "how to reach the API server")
		root       = flags.String("root", "", "root directory; outlives a reboot")
		boot       = flags.String("boot", "", "boot ID")
		cri        = flags.String("cri", "", "socket of the container runtime")
		status     = flags.Duration("node-status-update-frequency", 10*time.Second, "nodeStatusUpdateFrequency")
		shutdown   = flags.Duration("shutdown-grace-period", 0, "shutdownGracePeriod; SIGUSR1 announces the shutdown")
		backoff    = flags.Duration("max-container-restart-period", 0, "crashLoopBackOff.maxContainerRestartPeriod")
		static     = flags.Bool("static", false, "watch for static pods, which takes an inotify instance; machines have few")
		taint      = flags.String("taint", "", "taint of a new node")
	)
	klog.InitFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx := context.Background()
	// Each node status looks up the node's name. Nobody knows it, and some name servers take five seconds to say so.
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the nodes of the test bed have no names")
	}}

	options := &kubemark.HollowKubeletOptions{NodeName: *name, MaxPods: 250}
	if *taint != "" {
		var err error
		if options.RegisterWithTaints, _, err = taints.ParseTaints([]string{*taint}); err != nil {
			return err
		}
	}
	if err := os.Setenv("TMPDIR", *root); err != nil { // GetHollowKubeletConfig makes folders that nobody removes
		return err
	}
	f, c := kubemark.GetHollowKubeletConfig(options)
	c.StaticPodPath, c.PodLogsDir = "", filepath.Join(*root, "logs")
	if *static {
		c.StaticPodPath = filepath.Join(*root, "static")
	}
	if err := errors.Join(os.RemoveAll(f.RootDirectory), os.MkdirAll(c.PodLogsDir, 0o755)); err != nil {
		return err
	}
	f.RootDirectory, f.CertDirectory = *root, filepath.Join(*root, "pki")
	// Here kubemark differs from a kubelet of a cluster.
	c.EnableControllerAttachDetach = true
	c.FileCheckFrequency = metav1.Duration{Duration: time.Second}
	c.SyncFrequency = metav1.Duration{Duration: time.Minute}
	c.NodeStatusUpdateFrequency = metav1.Duration{Duration: *status}
	c.MaxOpenFiles = 1 << 16
	c.EnableServer, c.ReadOnlyPort = false, 0
	c.ProviderID = ""
	c.ShutdownGracePeriod = metav1.Duration{Duration: *shutdown}
	if *backoff > 0 {
		c.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: *backoff}
	}
	announceShutdowns()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "kubelet"
	config.QPS, config.Burst = float32(c.KubeAPIQPS), int(c.KubeAPIBurst)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json" // asFilesystems reads it
	config.Wrap(asFilesystems)
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	config.Dial = dialer.DialContext
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	heartbeat := *config
	heartbeat.Timeout, heartbeat.QPS = c.NodeStatusUpdateFrequency.Duration, -1
	heartbeatClient, err := kubernetes.NewForConfig(&heartbeat)
	if err != nil {
		return err
	}

	runtime, err := remote.NewRemoteRuntimeService(ctx, "unix://"+*cri, 2*time.Minute, noop.NewTracerProvider(), false)
	if err != nil {
		return err
	}
	images, err := remote.NewRemoteImageService(ctx, "unix://"+*cri, 2*time.Minute, noop.NewTracerProvider(), false)
	if err != nil {
		return err
	}
	k := kubemark.NewHollowKubelet(f, c, client, heartbeatClient, &machine{name: *name, boot: *boot}, images, runtime, cm.NewStubContainerManager())
	k.KubeletDeps.ProbeManager = nil // the fake one calls every container ready, ended ones too
	k.KubeletDeps.OnHeartbeatFailure = dialer.CloseAll
	k.Run(ctx)
	return nil
}
