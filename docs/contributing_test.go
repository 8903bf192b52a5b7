package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// path is a path of this repository in a page: the target of a link, or code with a slash or the ending of a file. A command is
// neither, but may have packages in it.
var path = regexp.MustCompile("\\]\\(([^)#]+)[^)]*\\)|`([a-zA-Z.]+(?:/[a-zA-Z_.-]*)*(?:/|\\.[a-z]+))`|(?:^|[ `])(\\./[a-z/]+)")

func TestEveryPathThatContributorsAreToldExists(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}

	named := 0

	for _, match := range path.FindAllStringSubmatch(string(page), -1) {
		name := match[1] + match[2] + match[3]
		if strings.Contains(name, "://") {
			continue
		}

		named++

		if _, err := os.Stat(filepath.Join("..", name)); err != nil {
			t.Errorf("CONTRIBUTING.md names what does not exist: %v", err)
		}
	}

	if named < 40 {
		t.Errorf("only %d paths were found in CONTRIBUTING.md", named)
	}
}
