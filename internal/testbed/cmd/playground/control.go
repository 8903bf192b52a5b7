package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// handler serves the commands: POST /<action>/<node> and GET /status.
func handler(b *bed.Bed) http.Handler {
	mux := http.NewServeMux()
	for action, do := range map[string]func(...string){
		"crash": b.Crash, "return": b.Return, "isolate": b.Isolate, "rejoin": b.Rejoin,
	} {
		mux.HandleFunc("POST /"+action+"/{node}", func(w http.ResponseWriter, r *http.Request) {
			node := r.PathValue("node")
			if b.Node(node) == nil {
				http.Error(w, "there is no node "+node, http.StatusNotFound)
				return
			}
			do(node)
			fmt.Printf("%s  %s %s\n", time.Now().Format(time.TimeOnly), action, node)
			_, _ = fmt.Fprintf(w, "%s %s: done\n", action, node)
		})
	}
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		if err := status(r.Context(), w, b); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}

// status prints nodes and pods.
func status(ctx context.Context, out io.Writer, b *bed.Bed) error {
	leader, err := b.Leader(ctx)
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := b.Client.List(ctx, &pods); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	line := func(columns ...any) { _, _ = fmt.Fprintf(table, "%v\t%v\t%v\n", columns...) }
	line("NODE", "POWER", "LINSTOR")
	for _, n := range b.Nodes() {
		power := "off"
		if n.On() {
			power = "on"
		}
		line(n.Name, power, b.LINSTOR.ConnectionStatus(n.Name))
	}
	line("", "", "")
	line("POD", "NODE", "PHASE")
	for _, pod := range pods.Items {
		phase := string(pod.Status.Phase)
		if pod.DeletionTimestamp != nil {
			phase += ", Terminating"
		}
		if pod.Name == leader {
			phase += ", leads"
		}
		line(pod.Namespace+"/"+pod.Name, pod.Spec.NodeName, phase)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the status: %w", err)
	}
	return nil
}

// command sends one command to the running playground.
func command(ctx context.Context, args []string) error {
	root, err := bed.Root()
	if err != nil {
		return err
	}
	socket := filepath.Join(root, ".testbed", controlSocket)
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	method, path := http.MethodPost, ""
	switch {
	case len(args) == 1 && args[0] == "status":
		method, path = http.MethodGet, "/status"
	case len(args) == 2:
		path = "/" + url.PathEscape(args[0]) + "/" + url.PathEscape(args[1])
	default:
		return errors.New("use: crash|return|isolate|rejoin <node>, or status")
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://playground"+path, nil)
	if err != nil {
		return fmt.Errorf("%v: %w", args, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("is `make playground` running? %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%v: %w", args, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%v: %s: %s", args, resp.Status, answer)
	}
	_, err = os.Stdout.Write(answer)
	return err
}
