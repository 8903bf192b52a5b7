package check

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
)

// Status is the exit status of the command.
type Status int

const (
	// StatusProtected : every selected pod would be moved if its node were lost now, or none has a volume.
	StatusProtected Status = 0
	// StatusUnprotected : some would not.
	StatusUnprotected Status = 1
	// StatusUnknown : it is not known, and nothing is known to be unprotected.
	StatusUnknown Status = 2
)

func statusOf(r forecast.Report) Status {
	switch r.Verdict {
	case failover.Protected:
		return StatusProtected
	case failover.Unprotected:
		return StatusUnprotected
	default:
		return StatusUnknown
	}
}

// CommandError is why there is no report, such as a fault of the command line.
type CommandError struct{ error }

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.error }

const usage = `Tells which selected pods would survive the loss of their node now, and what to change where they would not.

%s Nothing is changed.

Exit status: 0 all are protected, or none has a volume; 1 some are not; 2 it is not known.`

// Who is asked.
const (
	asksHere   = "It asks the replica of the controller in this pod."
	asksLeader = "It asks the replica of the controller that leads, by kubectl exec."
)

// asker asks a replica.
type asker func(context.Context, forecast.Question) (forecast.Report, error)

// Command is the command, which writes the report to its output. A plugin of kubectl asks the leader in the cluster; otherwise the replica in this pod
// is asked. It sets the exit status; if it fails with a [CommandError], that is StatusUnknown.
func Command(plugin bool, status *Status) *cobra.Command {
	c := commandLine{plugin: plugin}
	cmd := &cobra.Command{
		Use:                   "check [-n namespace] [--node name] [-o table|json|yaml]",
		Short:                 "Tell what would survive the loss of its node now",
		Long:                  fmt.Sprintf(usage, map[bool]string{true: asksLeader, false: asksHere}[plugin]),
		DisableFlagsInUseLine: true,
		DisableFlagParsing:    true, // the old spelling first
	}
	c.addFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		help, err := c.parse(cmd, args)
		if err != nil {
			return &CommandError{err}
		}
		if help {
			return cmd.Help()
		}
		ask, err := c.asker()
		if err == nil {
			*status, err = run(cmd.Context(), c, ask, cmd.OutOrStdout())
		}
		if err != nil {
			return &CommandError{err}
		}
		return nil
	}
	return cmd
}

// parse reads the arguments, and reports whether help is asked for.
func (c *commandLine) parse(cmd *cobra.Command, args []string) (help bool, err error) {
	cmd.DisableFlagParsing = false
	cmd.InitDefaultHelpFlag()
	fs := cmd.Flags()
	if err := cmd.ParseFlags(doubled(fs, args)); err != nil {
		return false, misread(err)
	}
	if help, err = fs.GetBool("help"); help || err != nil {
		return help, err
	}
	if fs.NArg() > 0 {
		return false, fmt.Errorf("reading the command line: unexpected argument %q", fs.Arg(0))
	}
	return false, c.finish()
}

// run asks and prints.
func run(ctx context.Context, c commandLine, ask asker, stdout io.Writer) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	report, err := ask(ctx, forecast.Question{Namespace: c.namespace, Node: c.node})
	if err != nil {
		return StatusUnknown, err
	}
	if err := write(stdout, c.format, report); err != nil {
		return StatusUnknown, fmt.Errorf("writing the report: %w", err)
	}
	return statusOf(report), nil
}

// here asks the replica in this pod.
func here(ctx context.Context, q forecast.Question) (forecast.Report, error) {
	port, err := forecast.Port(os.LookupEnv)
	if err != nil {
		return forecast.Report{}, err
	}
	report, err := forecast.Ask(ctx, port, q)
	if err != nil {
		return report, fmt.Errorf("asking the controller in this pod, which is where this command works (elsewhere use kubectl piraeus-ha check): %w", err)
	}
	return report, nil
}
