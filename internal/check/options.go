package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/leaderelection"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// Formats of the report.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// commandLine is the command line of the check. Its flags are those of kubectl where they mean the same.
type commandLine struct {
	format     string
	namespace  string
	everywhere bool
	node       string
	events     bool
	// cluster says how to reach the Kubernetes API.
	cluster    *genericclioptions.ConfigFlags
	deployment string // as it was given
	controller types.NamespacedName
	timeout    time.Duration
	// overrides are options of the controller, as on its command line, that were given to the check.
	overrides []string
}

// Options of the controller that the check takes, too.
var overridable = []struct{ name, usage string }{
	{"attacher-name", "name of the CSI driver, if not that of the running controller"},
	{"pod-label-selector", "label selector of the pods, if not that of the running controller"},
}

// addFlags binds the options to fs.
func (c *commandLine) addFlags(fs *pflag.FlagSet) {
	c.cluster = genericclioptions.NewConfigFlags(true)
	c.cluster.CacheDir, c.cluster.DisableCompression = nil, nil // nothing is kept, and nothing compressed
	c.cluster.AddFlags(fs)
	fs.Lookup("namespace").Usage = "only look at pods of this namespace"
	fs.BoolVarP(&c.everywhere, "all-namespaces", "A", false, "look at the pods of all namespaces, as without --namespace")
	fs.StringVarP(&c.format, "output", "o", formatTable, "format of the report: table, json or yaml")
	fs.StringVar(&c.node, "node", "", "tell what would become of the pods of this node if it were lost now")
	fs.BoolVar(&c.events, "events", false, "tell by Events and marks what the last fail-overs did, and what is still open of them")
	fs.StringVar(&c.deployment, "controller", leaderelection.Namespace(options.Default())+"/"+defaultDeployment,
		"namespace/name of the controller's Deployment")
	fs.DurationVar(&c.timeout, "timeout", time.Minute, "how long the check may take")
	for _, o := range overridable {
		fs.String(o.name, "", o.usage)
	}
	fs.SortFlags = true
}

// finish takes what the flags say, and returns what is wrong with it before anything is asked.
func (c *commandLine) finish(fs *pflag.FlagSet) error {
	c.namespace = *c.cluster.Namespace
	if !slices.Contains([]string{formatTable, formatJSON, formatYAML}, c.format) {
		return fmt.Errorf("invalid option -o=%q: must be table, json or yaml", c.format)
	}
	if c.timeout <= 0 {
		return fmt.Errorf("invalid option --timeout=%q: must be greater than zero", c.timeout)
	}
	if c.everywhere && c.namespace != "" {
		return errors.New("invalid options --all-namespaces and --namespace: they contradict each other")
	}
	if c.events && c.node != "" {
		return errors.New("invalid options --events and --node: the one asks about what has been, the other about what would be")
	}
	var ok bool
	if c.controller.Namespace, c.controller.Name, ok = strings.Cut(c.deployment, "/"); !ok || c.controller.Name == "" {
		return fmt.Errorf("invalid option --controller=%q: must be namespace/name of the controller's Deployment", c.deployment)
	}
	for _, o := range overridable {
		if f := fs.Lookup(o.name); f.Changed {
			c.overrides = append(c.overrides, "--"+o.name+"="+f.Value.String())
		}
	}
	_, err := options.Parse(c.overrides)
	return err
}

// doubled gives the options that are spelt with one dash, as earlier releases took them, a second one.
func doubled(fs *pflag.FlagSet, args []string) []string {
	result := slices.Clone(args)
	for i, arg := range result {
		if arg == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && len(name) > 1 && fs.Lookup(name) != nil {
			result[i] = "-" + arg
		}
	}
	return result
}

// misread explains a fault of the command line.
func misread(err error) error {
	text := err.Error()
	if strings.Contains(text, "in duration") {
		text += ": " + options.SuchAs
	}
	return fmt.Errorf("reading the command line: %s (--help lists the options)", text)
}
