package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/check"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/version"
)

// program is the name of the controller's program, and pluginPrefix begins the names of kubectl's plugins.
const (
	program      = "piraeus-ha-controller"
	pluginPrefix = "kubectl-"
)

// Controller runs the controller by its options.
type Controller func(ctx context.Context, args []string, stdout io.Writer) error

// Main runs what args ask for, of which the first is the name by which the program was called, and returns the exit status. Before a command
// runs that is not the controller it calls quiet, which keeps libraries from writing between the lines of an answer: their loggers are the
// whole process's.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer, controller Controller, quiet func()) int {
	name, plugin := nameOf(args[0])
	args = args[1:]
	if !plugin && (len(args) == 0 || strings.HasPrefix(args[0], "-")) {
		if err := controller(ctx, args, stdout); err != nil {
			_, _ = fmt.Fprintf(stderr, "%s: %v\n", name, err)
			return 1
		}
		return 0
	}
	quiet()
	status := check.StatusProtected
	root := command(name, plugin, &status) //nolint:contextcheck // cobra hands it to the commands
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		if named, failed := errors.AsType[*check.CommandError](err); failed {
			err = named
			name += " check"
			status = check.StatusUnknown
		} else {
			status = 1
		}
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", name, err)
	}
	return int(status)
}

// nameOf returns what a person types to call the program, and whether that is by kubectl: kubectl-piraeus_ha is "kubectl piraeus-ha".
func nameOf(path string) (name string, plugin bool) {
	base := strings.TrimSuffix(filepath.Base(path), ".exe")
	if rest, ok := strings.CutPrefix(base, pluginPrefix); ok {
		// A dash begins the name of a further command, and an underscore is a dash in the name of one.
		return "kubectl " + strings.ReplaceAll(strings.ReplaceAll(rest, "-", " "), "_", "-"), true
	}
	return program, false
}

// command returns the commands. A plugin of kubectl has no controller to run.
func command(name string, plugin bool, status *check.Status) *cobra.Command {
	root := &cobra.Command{
		Use:           program,
		Short:         "Moves workloads off nodes that lost their LINSTOR storage",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		Version:       version.String(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	if !plugin {
		root.SetHelpFunc(helpOfController(root.HelpFunc()))
	}
	root.AddCommand(check.Command(plugin, status), &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
			return err
		},
	})
	return root
}

// helpOfController tells of the controller's options where no command is named.
func helpOfController(others func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, args []string) {
		if cmd.HasParent() {
			others(cmd, args)
			return
		}
		_ = options.Usage(cmd.OutOrStdout()) // who cannot be written to cannot be told
	}
}
