// Command dashboard writes the Grafana dashboard of the controller to standard output, as JSON. "make dashboard" has it write
// config/extras/monitoring/dashboard.json.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

func run() error {
	board, err := controllerBoard().Build()
	if err != nil {
		return err
	}
	return write(os.Stdout, board)
}

func write(w io.Writer, board dashboard.Dashboard) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(board)
}
