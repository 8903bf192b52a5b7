package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/linstorsim"
)

// backend is LINSTOR as its CSI driver sees it. It reads by REST, so that nothing can be attached while
// LINSTOR does not answer, and writes to the simulation directly, which serves no requests that write.
type backend struct {
	server *linstorsim.Server
	url    string
}

// NodeOnline implements csidriver.Backend.
func (b backend) NodeOnline(node string) bool {
	var n struct {
		ConnectionStatus string `json:"connection_status"`
	}
	return b.get("/v1/nodes/"+node, &n) == nil && n.ConnectionStatus == linstorsim.Online
}

// Replicas implements csidriver.Backend.
func (b backend) Replicas(resource string) ([]csidriver.Replica, error) {
	var list []struct {
		NodeName string   `json:"node_name"`
		Flags    []string `json:"flags"`
		State    struct {
			InUse bool `json:"in_use"`
		} `json:"state"`
	}
	if err := b.get("/v1/resource-definitions/"+resource+"/resources", &list); err != nil {
		return nil, err
	}
	replicas := make([]csidriver.Replica, 0, len(list))
	for _, r := range list {
		replicas = append(replicas, csidriver.Replica{
			Node: r.NodeName, InUse: r.State.InUse, Deleting: slices.Contains(r.Flags, linstorsim.FlagDelete),
		})
	}
	return replicas, nil
}

// get reads one object of LINSTOR's REST API.
func (b backend) get(path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		return fmt.Errorf("LINSTOR %s: %w", path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("LINSTOR: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return fmt.Errorf("LINSTOR %s: %w", path, csidriver.ErrNotFound)
	default:
		return fmt.Errorf("LINSTOR %s: %s", path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("LINSTOR %s: %w", path, err)
	}
	return nil
}

// AddDiskless implements csidriver.Backend.
func (b backend) AddDiskless(resource, node string) error {
	return b.server.MakeAvailable(resource, node)
}

// RemoveDiskless implements csidriver.Backend.
func (b backend) RemoveDiskless(resource, node string) error {
	err := b.server.RemoveReplica(resource, node)
	if errors.Is(err, drbd.ErrInUse) {
		return errors.Join(csidriver.ErrInUse, err)
	}
	return err
}

// SetAllowTwoPrimaries implements csidriver.Backend.
func (b backend) SetAllowTwoPrimaries(resource string, allow bool) error {
	value := ""
	if allow {
		value = "yes"
	}
	b.server.SetDefinitionProperty(resource, linstorsim.PropAllowTwoPrimaries, value)
	return nil
}
