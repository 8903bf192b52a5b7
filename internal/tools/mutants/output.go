package main

import (
	"regexp"
	"strings"
)

// doesNotBuild tells whether the output is the compiler's.
func doesNotBuild(output string) bool { return strings.HasPrefix(output, "# ") }

var (
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
