package main

import (
	"regexp"
	"strconv"
	"strings"
)

// doesNotBuild tells whether the output is the compiler's.
func doesNotBuild(output string) bool { return strings.HasPrefix(output, "# ") }

// slowest is how long a test may take to be asked among the first.
const slowest = 0.2 // seconds

// slowTests returns a regular expression of the tests that took longer, empty when none did.
func slowTests(output string) string {
	var names []string
	for _, match := range passLine.FindAllStringSubmatch(output, -1) {
		if seconds, err := strconv.ParseFloat(match[2], 64); err == nil && seconds > slowest {
			names = append(names, match[1])
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

var (
	passLine    = regexp.MustCompile(`(?m)^--- PASS: (\S+) \((\S+)s\)`)
	failLine    = regexp.MustCompile(`--- FAIL: (\S+)`)
	runningLine = regexp.MustCompile(`running tests:\n\s+(\S+)`)
	testFrame   = regexp.MustCompile(`\.(Test\w+)`)
)

// failedTest names the test that failed first, and of it the innermost; nothing if that is not to be seen.
func failedTest(output string) string {
	name := ""
	for _, match := range failLine.FindAllStringSubmatch(output, -1) {
		if name == "" || strings.HasPrefix(match[1], name+"/") {
			name = match[1]
		}
	}
	if name != "" {
		return name
	}
	for _, pattern := range []*regexp.Regexp{runningLine, testFrame} {
		if match := pattern.FindStringSubmatch(output); match != nil {
			return match[1]
		}
	}
	return ""
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
