package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "unsafe" // for go:linkname

	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/pkg/kubelet/nodeshutdown" // has systemDbus
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown/systemd"
)

// logind is what the kubelet asks of systemd's login manager. It has the methods of nodeshutdown.dbusInhibiter.
type logind interface {
	CurrentInhibitDelay() (time.Duration, error)
	InhibitShutdown() (systemd.InhibitLock, error)
	ReleaseInhibitLock(lock systemd.InhibitLock) error
	ReloadLogindConf() error
	MonitorShutdown(klog.Logger) (<-chan bool, error)
	OverrideInhibitDelay(inhibitDelayMax time.Duration) error
}

// systemDbus is how the kubelet reaches it.
//
//go:linkname systemDbus k8s.io/kubernetes/pkg/kubelet/nodeshutdown.systemDbus
var systemDbus func() (logind, error)

// signals is a login manager that announces a shutdown when the process gets SIGUSR1. The power goes when the bed takes it.
type signals struct{}

// announceShutdowns lets the kubelet hear of shutdowns by signals.
func announceShutdowns() { systemDbus = func() (logind, error) { return signals{}, nil } }

func (signals) CurrentInhibitDelay() (time.Duration, error)   { return time.Hour, nil }
func (signals) InhibitShutdown() (systemd.InhibitLock, error) { return 1, nil }
func (signals) ReleaseInhibitLock(systemd.InhibitLock) error  { return nil }
func (signals) ReloadLogindConf() error                       { return nil }
func (signals) OverrideInhibitDelay(time.Duration) error      { return nil }
func (signals) MonitorShutdown(klog.Logger) (<-chan bool, error) {
	heard, announced := make(chan os.Signal, 1), make(chan bool)
	signal.Notify(heard, syscall.SIGUSR1)
	go func() {
		for range heard {
			announced <- true
		}
	}()
	return announced, nil
}
