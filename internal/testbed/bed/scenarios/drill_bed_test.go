package scenarios_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// nodeList is what "linstor node list" says of the nodes.
func (d *drill) nodeList() string {
	var text strings.Builder
	for _, node := range d.Nodes {
		fmt.Fprintln(&text, node, d.LINSTOR.ConnectionStatus(node))
	}
	return text.String()
}

// linstorPatience is how long the reader waits for LINSTOR, which asks a satellite that is gone until it has given it up.
const linstorPatience = 2 * time.Second

// resourceList is what "linstor resource list" makes of what LINSTOR answers: for each replica resource, node, connections and disk.
func (d *drill) resourceList() (string, error) {
	ctx, cancel := context.WithTimeout(d.Ctx, linstorPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.LINSTORURL()+"/v1/view/resources?resources="+d.resource, nil)
	d.Must(err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("linstor resource list: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("linstor resource list: %s", response.Status)
	}
	var replicas []struct {
		Name     string `json:"name"`
		NodeName string `json:"node_name"`
		Layer    struct {
			DRBD struct {
				Connections map[string]struct {
					Connected bool   `json:"connected"`
					Message   string `json:"message"`
				} `json:"connections"`
			} `json:"drbd"`
		} `json:"layer_object"`
		Volumes []struct {
			State struct {
				Disk string `json:"disk_state"`
			} `json:"state"`
		} `json:"volumes"`
	}
	if err := json.NewDecoder(response.Body).Decode(&replicas); err != nil {
		return "", fmt.Errorf("linstor resource list: %w", err)
	}
	var text strings.Builder
	for _, r := range replicas {
		words := []string{r.Name, r.NodeName}
		for peer, c := range r.Layer.DRBD.Connections {
			if !c.Connected {
				words = append(words, c.Message+"("+peer+")")
			}
		}
		if len(words) == 2 {
			words = append(words, "Ok")
		}
		disk := "Unknown"
		if len(r.Volumes) > 0 {
			disk = cmp.Or(r.Volumes[0].State.Disk, disk)
		}
		fmt.Fprintln(&text, strings.Join(append(words, disk), " "))
	}
	return text.String(), nil
}

// connected is expected of "linstor resource list" where all is well.
func connected(d *drill, shown string) bool {
	lines := linesWith(shown, d.resource)
	return len(lines) == 3 && !slices.ContainsFunc(lines, func(line []string) bool {
		disk := line[len(line)-1]
		return !slices.Contains(line, "Ok") || disk != drbd.UpToDate && disk != drbd.Diskless
	})
}

// drbdStatus is what "drbdsetup status" says on the lost node.
func (d *drill) drbdStatus() string {
	state, up := d.DRBD.Replica(d.resource, d.node)
	if !up {
		return ""
	}
	text := d.resource + " role:" + state.Role
	if state.IO == drbd.IOSuspended {
		text += " suspended:quorum"
	}
	text += "\n  disk:" + state.DiskState
	if !state.HasQuorum {
		text += " quorum:no"
	}
	return text + "\n"
}

func suspended(status string) bool {
	return strings.Contains(status, "quorum:no") && strings.Contains(status, "suspended:quorum")
}
