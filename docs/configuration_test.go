package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// The page is what the command line says of itself.
func TestConfigurationPageIsWhatTheOptionsSay(t *testing.T) {
	t.Parallel()

	var table strings.Builder

	table.WriteString("| Option | Default | Meaning |\n| --- | --- | --- |\n")

	for _, f := range options.Flags() {
		value := ""
		if f.Default != "" {
			value = "`" + f.Default + "`"
		}

		fmt.Fprintf(&table, "| `--%s` | %s | %s. |\n", f.Name, value, strings.ToUpper(f.Usage[:1])+f.Usage[1:])
	}

	compareGenerated(t, "configuration.md", table.String())
}
