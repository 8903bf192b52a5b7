package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// The page is what the tables of options and of environment variables say.
func TestConfigurationPageIsWhatTheTablesSay(t *testing.T) {
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

	var variables strings.Builder

	variables.WriteString("| Variable | Meaning |\n| --- | --- |\n")

	for _, v := range linstor.Variables() {
		name := "`" + v.Name + "`"
		if v.File {
			name = "`" + v.Name + "_FILE` or " + name
		}

		fmt.Fprintf(&variables, "| %s | %s |\n", name, v.Meaning)
	}

	compareGenerated(t, "configuration.md", table.String(), variables.String())
}
