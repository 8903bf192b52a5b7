package check

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Run is the command; args are those after its name. It writes the report to stdout, and to stderr why there is none,
// such as a fault of the command line: then the status is StatusUnknown.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) Status {
	status, err := run(ctx, args, stdout)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "piraeus-ha-controller check:", err)
		return StatusUnknown
	}
	return status
}

func run(ctx context.Context, args []string, stdout io.Writer) (Status, error) {
	c, err := parseCommandLine(args)
	if errors.Is(err, flag.ErrHelp) {
		return StatusProtected, printUsage(stdout)
	}
	if err != nil {
		return StatusUnknown, err
	}
	// Libraries would write between the lines of the report; what matters of it is in the report.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
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
