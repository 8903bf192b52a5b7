package check

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// CommandError is why there is no report, such as a fault of the command line.
type CommandError struct{ error }

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.error }

const usage = `Tells which selected pods would survive the loss of their node now, and what to change where they would not.

LINSTOR is found by the environment variables LS_CONTROLLERS, LS_USER_CERTIFICATE and so on. The options of the running
controller are read from its Deployment. Nothing is changed.

Exit status: 0 all are protected, or none is selected; 1 some are not; 2 it could not be told. With --events, 1 says that something
is open.`

// Command is the command, whose report it writes to its output. It sets the exit status; where it fails with a [CommandError], that is
// StatusUnknown.
func Command(status *Status) *cobra.Command {
	var c commandLine
	cmd := &cobra.Command{
		Use:                   "check [-n namespace] [--node name | --events] [-o table|json|yaml] [--option=value ...]",
		Short:                 "Tell what would survive the loss of its node now",
		Long:                  usage,
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
		if *status, err = run(cmd.Context(), c, cmd.OutOrStdout()); err != nil {
			return &CommandError{err}
		}
		return nil
	}
	return cmd
}

// parse reads the arguments, and tells whether help is asked for.
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
	return false, c.finish(fs)
}

func run(ctx context.Context, c commandLine, stdout io.Writer) (Status, error) {
	s, err := connect(c, os.LookupEnv)
	if err != nil {
		return StatusUnknown, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return s.report(ctx, c, stdout)
}

// report gathers, evaluates and prints.
func (s sources) report(ctx context.Context, c commandLine, stdout io.Writer) (Status, error) {
	answer, err := s.answer(ctx, c)
	if err != nil {
		return StatusUnknown, err
	}
	if err := write(stdout, c.format, answer); err != nil {
		return StatusUnknown, fmt.Errorf("writing the report: %w", err)
	}
	return answer.Status(), nil
}

// answer tells what was asked for: what would be, or what has been.
func (s sources) answer(ctx context.Context, c commandLine) (answer, error) {
	if c.events {
		read, err := s.readRecords(ctx, c)
		if err != nil {
			return nil, err
		}
		return tell(read), nil
	}
	facts, err := s.gather(ctx, c)
	if err != nil {
		return nil, err
	}
	return Evaluate(facts), nil
}
