package linstor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	lapi "github.com/LINBIT/golinstor/client"
)

// Kinds of requests, as errors and metrics name them.
const (
	kindNodes       = "nodes"
	kindController  = "controller properties"
	kindDefinitions = "resource definitions"
	kindDefinition  = "resource definition"
	kindGroups      = "resource groups"
	kindGroup       = "resource group"
	kindResources   = "resources"
	kindView        = "resource view"
	kindSome        = "some resources"
	kindSomeDefs    = "some resource definitions"
	kindPools       = "storage pools"
	kindSatellite   = "satellite"
	kindStream      = "event stream"
)

// kinds are all of them.
var kinds = []string{
	kindNodes, kindController, kindDefinitions, kindDefinition, kindGroups, kindGroup, kindResources, kindView, kindSome, kindSomeDefs,
	kindPools, kindSatellite, kindStream,
}

func (c *Client) nodes(ctx context.Context) ([]wireNode, error) {
	return ask(ctx, c, kindNodes, func(ctx context.Context, api *lapi.Client) ([]wireNode, error) {
		return api.Nodes.GetAll(ctx)
	})
}

func (c *Client) controllerProps(ctx context.Context) (map[string]string, error) {
	return ask(ctx, c, kindController, func(ctx context.Context, api *lapi.Client) (map[string]string, error) {
		return api.Controller.GetProps(ctx)
	})
}

func (c *Client) definitions(ctx context.Context) ([]wireDefinition, error) {
	return getJSON[[]wireDefinition](ctx, c, kindDefinitions, "/v1/resource-definitions")
}

func (c *Client) definition(ctx context.Context, name string) (wireDefinition, error) {
	path, err := under("/v1/resource-definitions/", name)
	if err != nil {
		return wireDefinition{}, err
	}
	return getJSON[wireDefinition](ctx, c, kindDefinition, path)
}

func (c *Client) groups(ctx context.Context) ([]wireGroup, error) {
	return ask(ctx, c, kindGroups, func(ctx context.Context, api *lapi.Client) ([]wireGroup, error) {
		return api.ResourceGroups.GetAll(ctx)
	})
}

// group is not read by golinstor, which does not escape the name.
func (c *Client) group(ctx context.Context, name string) (wireGroup, error) {
	path, err := under("/v1/resource-groups/", name)
	if err != nil {
		return wireGroup{}, err
	}
	return getJSON[wireGroup](ctx, c, kindGroup, path)
}

// resources reads the resources of one definition. LINSTOR answers it from memory, whatever state its
// satellites are in.
func (c *Client) resources(ctx context.Context, definition string) ([]wireResource, error) {
	path, err := under("/v1/resource-definitions/", definition)
	if err != nil {
		return nil, err
	}
	return getJSON[[]wireResource](ctx, c, kindResources, path+"/resources")
}

// under returns the path of what has a name. Dots alone, and nothing, would lead elsewhere whatever is escaped: LINSTOR has no
// such names.
func under(path, name string) (string, error) {
	if name == "" || name == "." || name == ".." {
		return "", fmt.Errorf("LINSTOR can have nothing of the name %q: %w", name, ErrNotFound)
	}
	return path + url.PathEscape(name), nil
}

// view reads all resources that have volumes. It is large, hence decoded element by element, and slow
// while a satellite hangs.
func (c *Client) view(ctx context.Context) ([]wireResource, error) {
	var all []wireResource
	err := c.get(ctx, kindView, c.viewTimeout, "/v1/view/resources", func(body io.Reader) error {
		all = nil
		return decodeList(body, func(r wireResource) { all = append(all, r) })
	})
	return all, err
}

// someResources reads the named resources as far as they have volumes. Like the whole view it is slow while a satellite
// hangs.
func (c *Client) someResources(ctx context.Context, names []string) ([]wireResource, error) {
	var all []wireResource
	err := c.get(ctx, kindSome, c.requestTimeout, somePath("/v1/view/resources", "resources", names), func(body io.Reader) error {
		var err error
		all, err = c.rows.decodeList(body)
		return err
	})
	return all, err
}

// someDefinitions reads the named resource definitions; those that do not exist are left out.
func (c *Client) someDefinitions(ctx context.Context, names []string) ([]wireDefinition, error) {
	var all []wireDefinition
	path := somePath("/v1/resource-definitions", "resource_definitions", names)
	err := c.get(ctx, kindSomeDefs, c.requestTimeout, path, func(body io.Reader) error {
		all = nil
		return decodeList(body, func(d wireDefinition) { all = append(all, d) })
	})
	return all, err
}

// somePath returns the path of a list that is filtered by names.
func somePath(path, filter string, names []string) string {
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

func getJSON[T any](ctx context.Context, c *Client, kind, path string) (T, error) {
	var value T
	err := c.get(ctx, kind, c.requestTimeout, path, func(body io.Reader) error {
		value = *new(T)
		return json.NewDecoder(body).Decode(&value)
	})
	return value, err
}

// decodeList decodes a JSON list one element at a time.
func decodeList[T any](body io.Reader, each func(T)) error {
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
