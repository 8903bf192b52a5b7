package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// How large a list may be: 50,000 replicas take 75 MB.
const (
	maxList     = 256 << 20
	maxElements = 200_000
)

// Kinds of requests, as errors and metrics name them.
const (
	kindNodes       = "nodes"
	kindController  = "controller properties"
	kindDefinitions = "resource definitions"
	kindDefinition  = "resource definition"
	kindGroups      = "resource groups"
	kindResources   = "resources"
	kindView        = "resource view"
	kindSomeDefs    = "some resource definitions"
	kindPools       = "storage pools"
	kindSatellite   = "satellite"
	kindReports     = "error reports"
	kindStream      = "event stream"
	kindPlaced      = "placed resources"
	kindMarked      = "marked definitions"
	kindSnapshots   = "snapshots"
	kindVersion     = "version"
)

// Kinds returns all kinds of requests, as errors and metrics name them.
func Kinds() []string {
	return []string{
		kindNodes, kindController, kindDefinitions, kindDefinition, kindGroups, kindResources, kindView, kindSomeDefs, kindPools,
		kindSatellite, kindReports, kindStream, kindPlaced, kindMarked, kindSnapshots, kindVersion,
		kindAutoplace, kindEvacuate, kindRestore, kindProperties,
	}
}

// Nodes reads all nodes.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	return list(ctx, c, kindNodes, c.requestTimeout, "/v1/nodes", func(n Node) string { return n.Name })
}

// ControllerProps reads the properties of the controller.
func (c *Client) ControllerProps(ctx context.Context) (map[string]string, error) {
	return document[map[string]string](ctx, c, kindController, "/v1/controller/properties")
}

// Definitions reads all resource definitions, or the named ones; those that do not exist are left out.
func (c *Client) Definitions(ctx context.Context, names ...string) ([]Definition, error) {
	kind := kindDefinitions
	if len(names) > 0 {
		kind = kindSomeDefs
	}
	return list(ctx, c, kind, c.requestTimeout, filtered("/v1/resource-definitions", "resource_definitions", names), Definition.name)
}

// DefinitionProps reads all resource definitions, with no other properties than those of the given names.
func (c *Client) DefinitionProps(ctx context.Context, keys []string) ([]Definition, error) {
	var all []Definition
	err := c.get(ctx, kindDefinitions, c.requestTimeout, "/v1/resource-definitions", func(body io.Reader) error {
		all = nil
		return DecodeList(body, Definition.name, func(d Definition) {
			slim := Definition{Name: d.Name, ResourceGroupName: d.ResourceGroupName}
			for _, key := range keys {
				if value := d.Props[key]; value != "" {
					if slim.Props == nil {
						slim.Props = make(map[string]string)
					}
					slim.Props[key] = value
				}
			}
			all = append(all, slim)
		})
	})
	return all, err
}

// Definition reads one resource definition.
func (c *Client) Definition(ctx context.Context, name string) (Definition, error) {
	return document[Definition](ctx, c, kindDefinition, definitionPath(name))
}

// Groups reads all resource groups.
func (c *Client) Groups(ctx context.Context) ([]Group, error) {
	return list(ctx, c, kindGroups, c.requestTimeout, "/v1/resource-groups", func(g Group) string { return g.Name })
}

// Resources reads the resources of one definition. LINSTOR answers it from memory, whatever state its
// satellites are in.
func (c *Client) Resources(ctx context.Context, definition string) ([]Resource, error) {
	return list(ctx, c, kindResources, c.requestTimeout, definitionPath(definition)+"/resources", Resource.name)
}

func definitionPath(name string) string { return "/v1/resource-definitions/" + url.PathEscape(name) }

func nodePath(name string) string { return "/v1/nodes/" + url.PathEscape(name) }

// View reads all resources that have volumes. It is large, hence decoded element by element, and slow while a satellite hangs.
func (c *Client) View(ctx context.Context) ([]Resource, error) {
	return list(ctx, c, kindView, satelliteTimeout, "/v1/view/resources", Resource.name)
}

// filtered returns the path of a list of those that are named, or of all.
func filtered(path, filter string, names []string) string {
	var query strings.Builder
	query.WriteString(path)
	for i, name := range names {
		query.WriteByte("?&"[min(i, 1)])
		query.WriteString(filter)
		query.WriteByte('=')
		query.WriteString(url.QueryEscape(name))
	}
	return query.String()
}

func document[T any](ctx context.Context, c *Client, kind, path string) (T, error) {
	var value T
	err := c.get(ctx, kind, c.requestTimeout, path, func(body io.Reader) error {
		value = *new(T)
		return json.NewDecoder(http.MaxBytesReader(nil, io.NopCloser(body), maxAnswer)).Decode(&value)
	})
	return value, err
}

// list reads a JSON list of elements that have a name.
func list[T any](ctx context.Context, c *Client, kind string, timeout time.Duration, path string, name func(T) string) ([]T, error) {
	var all []T
	err := c.get(ctx, kind, timeout, path, func(body io.Reader) error {
		all = nil
		return DecodeList(body, name, func(element T) { all = append(all, element) })
	})
	return all, err
}

// DecodeList decodes a JSON list one element at a time. It returns an error for a list that is larger than any of LINSTOR's, or that has an element
// without a name: what is kept of an element can be a hundred times as large as its text.
func DecodeList[T any](body io.Reader, name func(T) string, each func(T)) error {
	decoder := json.NewDecoder(http.MaxBytesReader(nil, io.NopCloser(body), maxList))
	if token, err := decoder.Token(); err != nil {
		return err
	} else if token != json.Delim('[') {
		return errors.New("not a list")
	}
	for n := 0; decoder.More(); n++ {
		var element T
		if err := decoder.Decode(&element); err != nil {
			return fmt.Errorf("element %d: %w", n, err)
		}
		switch {
		case n == maxElements:
			return fmt.Errorf("more than %d elements", maxElements)
		case name(element) == "":
			return fmt.Errorf("element %d has no name", n)
		}
		each(element)
	}
	// Without its end the list is not complete.
	_, err := decoder.Token()
	return err
}
