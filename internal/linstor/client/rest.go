package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
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
		kindSatellite, kindStream, kindPlaced, kindMarked, kindSnapshots, kindVersion,
		kindAutoplace, kindEvacuate, kindRestore, kindProperties,
	}
}

// Nodes reads all nodes.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	return list[Node](ctx, c, kindNodes, c.requestTimeout, "/v1/nodes")
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
	return list[Definition](ctx, c, kind, c.requestTimeout, filtered("/v1/resource-definitions", "resource_definitions", names))
}

// Definition reads one resource definition.
func (c *Client) Definition(ctx context.Context, name string) (Definition, error) {
	return document[Definition](ctx, c, kindDefinition, definitionPath(name))
}

// Groups reads all resource groups.
func (c *Client) Groups(ctx context.Context) ([]Group, error) {
	return list[Group](ctx, c, kindGroups, c.requestTimeout, "/v1/resource-groups")
}

// Resources reads the resources of one definition. LINSTOR answers it from memory, whatever state its
// satellites are in.
func (c *Client) Resources(ctx context.Context, definition string) ([]Resource, error) {
	return list[Resource](ctx, c, kindResources, c.requestTimeout, definitionPath(definition)+"/resources")
}

func definitionPath(name string) string { return "/v1/resource-definitions/" + url.PathEscape(name) }

func nodePath(name string) string { return "/v1/nodes/" + url.PathEscape(name) }

// View reads all resources that have volumes. It is large, hence decoded element by element, and slow while a satellite hangs.
func (c *Client) View(ctx context.Context) ([]Resource, error) {
	return list[Resource](ctx, c, kindView, satelliteTimeout, "/v1/view/resources")
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
		return json.NewDecoder(body).Decode(&value)
	})
	return value, err
}

// list reads a JSON list.
func list[T any](ctx context.Context, c *Client, kind string, timeout time.Duration, path string) ([]T, error) {
	var all []T
	err := c.get(ctx, kind, timeout, path, func(body io.Reader) error {
		all = nil
		return DecodeList(body, func(element T) { all = append(all, element) })
	})
	return all, err
}

// DecodeList decodes a JSON list one element at a time.
func DecodeList[T any](body io.Reader, each func(T)) error {
	decoder := json.NewDecoder(body)
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
		each(element)
	}
	// Without its end the list is not complete.
	_, err := decoder.Token()
	return err
}
