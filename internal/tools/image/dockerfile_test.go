package image

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// repository is the folder that Docker would be given.
const repository = "../../.."

// dockerfile is this repository's Dockerfile, as Docker's own parser reads it. It can be built without Docker, as far as it has only
// what this package knows: a base counts as empty, a stage is a folder, and commands run on this machine in the folder of their stage.
type dockerfile struct {
	// globals are the arguments before the first stage.
	globals []instructions.ArgCommand
	stages  []instructions.Stage
	ignored *patternmatcher.PatternMatcher
}

func read(t *testing.T) dockerfile {
	t.Helper()
	file, err := os.Open(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	parsed, err := parser.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	stages, globals, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	return dockerfile{globals: globals, stages: stages, ignored: ignored(t)}
}

// ignored tells which files Docker does not see.
func ignored(t *testing.T) *patternmatcher.PatternMatcher {
	t.Helper()
	file, err := os.Open(filepath.Join(repository, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	patterns, err := ignorefile.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return matcher
}

// stage is a stage while it is built.
type stage struct {
	t *testing.T
	// folder is its root.
	folder string
	// workdir and config are those of the image that it would be.
	workdir string
	config  v1.Config
	// given are the arguments of the build, defaults those before the first stage.
	given, defaults map[string]string
	// variables are those that it has declared.
	variables map[string]string
}

// build builds all stages in folder with arguments, and returns the last one. A stage's folder has its name or, without one, "image".
func (d dockerfile) build(t *testing.T, folder string, arguments map[string]string) *stage {
	t.Helper()
	defaults := map[string]string{}
	for _, command := range d.globals {
		for _, a := range command.Args {
			defaults[a.Key] = a.ValueString()
		}
	}
	built := map[string]*stage{}
	var last *stage
	for _, definition := range d.stages {
		if built[definition.BaseName] != nil {
			t.Fatalf("line %v: a stage upon a stage is not known here", definition.Location)
		}
		name := definition.Name
		if name == "" {
			name = "image"
		}
		last = &stage{
			t: t, folder: filepath.Join(folder, name), workdir: "/",
			given: arguments, defaults: defaults, variables: map[string]string{},
		}
		built[name] = last
		if err := os.MkdirAll(last.folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, command := range definition.Commands {
			last.do(command, built, d.ignored)
		}
	}
	return last
}

// do follows one instruction.
func (s *stage) do(command instructions.Command, built map[string]*stage, ignored *patternmatcher.PatternMatcher) {
	s.t.Helper()
	if expandable, ok := command.(instructions.SupportsSingleWordExpansion); ok {
		if err := expandable.Expand(s.expand); err != nil {
			s.t.Fatal(err)
		}
	}
	switch c := command.(type) {
	case *instructions.ArgCommand:
		s.declare(c)
	case *instructions.WorkdirCommand:
		s.workdir = filepath.Join(s.workdir, c.Path)
	case *instructions.RunCommand:
		s.run(c)
	case *instructions.CopyCommand:
		if c.From == "" {
			s.copy(c, repository, ignored)
		} else {
			s.copy(c, built[c.From].folder, nil)
		}
	case *instructions.LabelCommand:
		if s.config.Labels == nil {
			s.config.Labels = map[string]string{}
		}
		for _, label := range c.Labels {
			s.config.Labels[label.Key] = label.Value
		}
	case *instructions.UserCommand:
		s.config.User = c.User
	case *instructions.EntrypointCommand:
		if c.PrependShell {
			s.t.Fatal("the entrypoint needs a shell, which the image does not have")
		}
		s.config.Entrypoint = c.CmdLine
	default:
		s.t.Fatalf("%s is not known here", command.Name())
	}
}

// expand puts the values of declared variables in their place.
func (s *stage) expand(word string) (string, error) {
	expanded, _, err := shell.NewLex('\\').ProcessWord(word, shell.EnvsFromSlice(s.environment()))
	return expanded, err
}

func (s *stage) environment() []string {
	var pairs []string
	for name, value := range s.variables {
		pairs = append(pairs, name+"="+value)
	}
	return pairs
}

// declare gives arguments their values: from the build, else the stage's own default, else that before the first stage.
func (s *stage) declare(c *instructions.ArgCommand) {
	for _, a := range c.Args {
		if value, ok := s.given[a.Key]; ok {
			s.variables[a.Key] = value
		} else if a.Value != nil {
			s.variables[a.Key] = *a.Value
		} else if value, ok := s.defaults[a.Key]; ok {
			s.variables[a.Key] = value
		}
	}
}

// run runs a command. What the environment sets for Go in general does not count, because Docker has none of it.
func (s *stage) run(c *instructions.RunCommand) {
	s.t.Helper()
	if !c.PrependShell || len(c.CmdLine) != 1 {
		s.t.Fatalf("RUN %q is not known here", c.CmdLine)
	}
	cmd := exec.CommandContext(s.t.Context(), "sh", "-c", c.CmdLine[0])
	cmd.Dir = filepath.Join(s.folder, s.workdir)
	cmd.Env = append(append(os.Environ(), "GOFLAGS=-buildvcs=auto", "GOWORK=off"), s.environment()...)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", c.CmdLine[0], err, out)
	}
}

// copy copies files and folders from a folder.
func (s *stage) copy(c *instructions.CopyCommand, from string, ignored *patternmatcher.PatternMatcher) {
	s.t.Helper()
	if c.Chown != "" || c.Chmod != "" || c.Link || c.Parents || len(c.ExcludePatterns) > 0 || len(c.SourceContents) > 0 {
		s.t.Fatalf("a flag of %s is not known here", c)
	}
	target := c.DestPath
	if !filepath.IsAbs(target) {
		target = filepath.Join(s.workdir, target)
	}
	target = filepath.Join(s.folder, target)
	for _, source := range c.SourcePaths {
		source = strings.TrimPrefix(source, "/")
		err := filepath.WalkDir(filepath.Join(from, source), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			seen, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			if ignored != nil {
				if no, err := ignored.MatchesOrParentMatches(seen); no || err != nil {
					return err
				}
			}
			below, err := filepath.Rel(source, seen)
			if err != nil {
				return err
			}
			if below == "." && strings.HasSuffix(c.DestPath, "/") {
				below = filepath.Base(source)
			}
			return copyFile(path, filepath.Join(target, below))
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm())
}

// with returns arguments and those of a platform, which Docker gives by itself.
func with(arguments map[string]string, p v1.Platform) map[string]string {
	all := map[string]string{"TARGETOS": p.OS, "TARGETARCH": p.Architecture, "TARGETPLATFORM": p.String()}
	maps.Copy(all, arguments)
	return all
}
