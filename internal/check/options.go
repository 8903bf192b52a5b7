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

// defaultDeployment is the Deployment of the shipped manifest.
const defaultDeployment = "piraeus-ha-controller"

// commandLine is the command line of the check. Its flags are those of kubectl if they mean the same.
type commandLine struct {
	format     string
	namespace  string
	everywhere bool
	node       string
	timeout    time.Duration

	// plugin is set if kubectl runs it. What follows is of a plugin only.
	plugin bool
	// cluster says how to reach the Kubernetes API, and own are the options that say so.
	cluster    *genericclioptions.ConfigFlags
	own        *pflag.FlagSet
	deployment string // as it was given
	controller types.NamespacedName
}

// addFlags binds the options to fs.
func (c *commandLine) addFlags(fs *pflag.FlagSet) {
	const namespaceUsage = "only look at pods of this namespace"
	if c.plugin {
		c.cluster = genericclioptions.NewConfigFlags(true)
		c.cluster.CacheDir, c.cluster.DisableCompression = nil, nil // nothing is kept, and nothing compressed
		c.cluster.Namespace = &c.namespace
		c.own = pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
		c.cluster.AddFlags(c.own)
		c.own.Lookup("namespace").Usage = namespaceUsage
		fs.AddFlagSet(c.own)
		fs.StringVar(&c.deployment, "controller", leaderelection.Namespace(options.Default())+"/"+defaultDeployment,
			"namespace/name of the controller's Deployment")
	} else {
		fs.StringVarP(&c.namespace, "namespace", "n", "", namespaceUsage)
	}
	fs.BoolVarP(&c.everywhere, "all-namespaces", "A", false, "look at the pods of all namespaces, as without --namespace")
	fs.StringVarP(&c.format, "output", "o", formatTable, "format of the report: table, json or yaml")
	fs.StringVar(&c.node, "node", "", "tell what would become of the pods of this node if it were lost now")
	fs.DurationVar(&c.timeout, "timeout", time.Minute, "how long the check may take")
	fs.SortFlags = true
}

// finish returns what is wrong with the options before anything is asked.
func (c *commandLine) finish() error {
	if !slices.Contains([]string{formatTable, formatJSON, formatYAML}, c.format) {
		return fmt.Errorf("invalid option -o=%q: must be table, json or yaml", c.format)
	}
	if c.timeout <= 0 {
		return fmt.Errorf("invalid option --timeout=%q: must be greater than zero", c.timeout)
	}
	if c.everywhere && c.namespace != "" {
		return errors.New("invalid options --all-namespaces and --namespace: they contradict each other")
	}
	if !c.plugin {
		return nil
	}
	var ok bool
	if c.controller.Namespace, c.controller.Name, ok = strings.Cut(c.deployment, "/"); !ok || c.controller.Name == "" {
		return fmt.Errorf("invalid option --controller=%q: must be namespace/name of the controller's Deployment", c.deployment)
	}
	return nil
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
