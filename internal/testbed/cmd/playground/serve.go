package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const (
	// controlSocket is where a running playground takes commands, in the folder of the test bed's logs.
	controlSocket = "playground.sock"

	startTimeout = 3 * time.Minute
	namespace    = "shop"
)

// serve brings up the cluster and serves commands until ctx ends.
func serve(ctx context.Context) error {
	root, err := bed.Root()
	if err != nil {
		return err
	}
	unlock, err := bed.Lock(filepath.Join(root, ".testbed", "playground.lock"))
	if errors.Is(err, bed.ErrLocked) {
		return errors.New("one is running already in this checkout: stop it by Ctrl-C first")
	}
	if err != nil {
		return err
	}
	defer unlock()
	began := time.Now()
	progress := func(step string) { fmt.Printf("  %5.1f s  %s\n", time.Since(began).Seconds(), step) }
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	fmt.Println("Starting a cluster on this machine:")
	b, err := bed.Start(startCtx, bed.Options{
		LogDir: filepath.Join(root, ".testbed", "playground"), Progress: progress, LINSTOR: linstorsim.Options{TieBreakers: true},
	})
	if err != nil {
		return err
	}
	defer b.Stop()
	if err := deploy(startCtx, b, progress); err != nil {
		return err
	}
	socket := filepath.Join(root, ".testbed", controlSocket)
	listener, err := listen(ctx, socket)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(socket) }()
	server := &http.Server{Handler: handler(b), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	printHelp(b)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			fmt.Println("\nStopping.")
			return nil
		case err := <-served:
			return fmt.Errorf("serve %s: %w", socket, err)
		case <-ticker.C:
			if err := b.Err(); err != nil {
				return err
			}
		}
	}
}

// listen opens the control socket; one that a killed playground left behind is replaced.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	_ = os.Remove(socket)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return listener, nil
}

// deploy starts the controller, four nodes and two databases, of which one is selected for fail-over.
func deploy(ctx context.Context, b *bed.Bed, progress func(string)) error {
	progress("the high availability controller from deploy/all.yaml, 3 replicas")
	if err := b.DeployController(ctx); err != nil {
		return err
	}
	progress("nodes node-1 to node-4, two StatefulSets")
	nodes, err := b.AddNodes(ctx, "node", 4)
	if err != nil {
		return err
	}
	for name, unselected := range map[string]bool{"orders": false, "archive": true} {
		w := bed.Workload{
			Namespace: namespace, Name: name, Nodes: nodes, PreferNode: nodes[0], Unselected: unselected,
			Volumes: []bed.Volume{{Name: name + "-data", Nodes: nodes[:3]}},
		}
		if err := b.Deploy(ctx, w); err != nil {
			return err
		}
		if _, err := b.WaitRunning(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// printHelp tells what can be done.
func printHelp(b *bed.Bed) {
	fmt.Printf(`
The cluster runs until Ctrl-C. In another terminal, in the same folder:

  export KUBECONFIG=%s
  bin/kubectl get pods --all-namespaces --output wide --watch
  bin/kubectl get events --all-namespaces --watch
  bin/kubectl get volumeattachments,nodes

  bin/playground crash node-1     # and: return, isolate, rejoin
  bin/playground status

  LS_CONTROLLERS=%s bin/piraeus-ha-controller check     # instead of kubectl exec: no container runs here
  tail -F %s/piraeus-ha-controller-*.log                # instead of kubectl logs

Pod orders-0 is labelled for fail-over, archive-0 is not. Both start on node-1.
The controller is installed already, by deploy/all.yaml; no image is needed to install it again. Logs of all parts: %s
`, b.Kubeconfig, b.LINSTORURL(), b.LogDir, b.LogDir)
}
