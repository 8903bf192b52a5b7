package check

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/leaderelection"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// Formats of the report.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// commandLine is the parsed command line of the check.
type commandLine struct {
	format     string
	namespace  string
	node       string
	events     bool
	kubeconfig string
	controller types.NamespacedName
	timeout    time.Duration
	// overrides are options of the controller, as on its command line, that were given to the check.
	overrides []string
}

const usage = `Tells which selected pods would survive the loss of their node now, and what to change where they would not.

Usage: piraeus-ha-controller check [-n namespace] [--node name | --events] [-o table|json|yaml] [--option=value ...]

LINSTOR is found by the environment variables LS_CONTROLLERS, LS_USER_CERTIFICATE and so on. The options of the running
controller are read from its Deployment. Nothing is changed.

Exit status: 0 all are protected, or none is selected; 1 some are not; 2 it could not be told. With --events, 1 says that something
is open.

Options:
`

func parseCommandLine(args []string) (commandLine, error) {
	var c commandLine
	controller, driver, selector := "", "", ""
	fs := c.flags(&controller, &driver, &selector)
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return c, err
	} else if err != nil {
		return c, fmt.Errorf("reading the command line: %w (check --help lists the options)", err)
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("reading the command line: unexpected argument %q", fs.Arg(0))
	}
	if !slices.Contains([]string{formatTable, formatJSON, formatYAML}, c.format) {
		return c, fmt.Errorf("invalid option -o=%q: must be table, json or yaml", c.format)
	}
	if c.timeout <= 0 {
		return c, fmt.Errorf("invalid option --timeout=%q: must be greater than zero", c.timeout)
	}
	if c.events && c.node != "" {
		return c, errors.New("invalid options --events and --node: the one asks about what has been, the other about what would be")
	}
	var ok bool
	if c.controller.Namespace, c.controller.Name, ok = strings.Cut(controller, "/"); !ok || c.controller.Name == "" {
		return c, fmt.Errorf("invalid option --controller=%q: must be namespace/name of the controller's Deployment", controller)
	}
	fs.Visit(func(f *flag.Flag) {
		if f.Name == "attacher-name" || f.Name == "pod-label-selector" {
			c.overrides = append(c.overrides, "--"+f.Name+"="+f.Value.String())
		}
	})
	// A fault of an option should show before anything is asked.
	_, err := options.Parse(c.overrides)
	return c, err
}

func (c *commandLine) flags(controller, driver, selector *string) *flag.FlagSet {
	defaults := options.Default()
	fs := flag.NewFlagSet("check", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	for _, name := range []string{"o", "output"} {
		fs.StringVar(&c.format, name, formatTable, "format of the report: table, json or yaml")
	}
	for _, name := range []string{"n", "namespace"} {
		fs.StringVar(&c.namespace, name, "", "only look at pods of this namespace")
	}
	fs.StringVar(&c.node, "node", "", "tell what would become of the pods of this node if it were lost now")
	fs.BoolVar(&c.events, "events", false, "tell by Events and marks what the last fail-overs did, and what is still open of them")
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "path of a kubeconfig file; only needed outside of a cluster")
	fs.StringVar(controller, "controller", leaderelection.Namespace(defaults)+"/"+defaultDeployment,
		"namespace/name of the controller's Deployment")
	fs.DurationVar(&c.timeout, "timeout", time.Minute, "how long the check may take")
	fs.StringVar(driver, "attacher-name", "", "name of the CSI driver, if not that of the running controller")
	fs.StringVar(selector, "pod-label-selector", "", "label selector of the pods, if not that of the running controller")
	return fs
}

func printUsage(w io.Writer) error {
	var b strings.Builder
	b.WriteString(usage)
	var c commandLine
	c.flags(new(string), new(string), new(string)).VisitAll(func(f *flag.Flag) {
		dashes := "--"
		if len(f.Name) == 1 {
			dashes = "-"
		}
		b.WriteString("  " + dashes + f.Name)
		if f.DefValue != "" {
			b.WriteString("=" + f.DefValue)
		}
		b.WriteString("\n        " + f.Usage + "\n")
	})
	_, err := io.WriteString(w, b.String())
	return err
}
