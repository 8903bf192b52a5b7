// Package page reads the pages of the documentation as their readers do, for the tests that follow them: chapters, the commands and files
// that they show, tables, and code within text. It runs nothing.
package page

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Chapter is what stands below a heading of the second level.
type Chapter struct{ Title, Text string }

// Chapters returns the chapters of a page in their order. What stands above the first is none.
func Chapters(file string) ([]Chapter, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	var chapters []Chapter
	for _, chapter := range strings.Split(string(content), "\n## ")[1:] {
		title, text, _ := strings.Cut(chapter, "\n")
		chapters = append(chapters, Chapter{Title: title, Text: text})
	}
	return chapters, nil
}

// Block is what stands between two fences.
type Block struct{ Language, Content string }

var fenced = regexp.MustCompile("(?s)\n```([a-z]*)\n(.*?)\n```")

// Blocks returns the blocks of a text in their order.
func Blocks(text string) []Block {
	var blocks []Block
	for _, match := range fenced.FindAllStringSubmatch("\n"+text, -1) {
		blocks = append(blocks, Block{Language: match[1], Content: match[2]})
	}
	return blocks
}

// Console is the language of blocks with commands.
const Console = "console"

// Commands returns the commands of a block in their order, each on one line.
func (b Block) Commands() []string {
	return strings.Split(strings.ReplaceAll(b.Content, "\\\n", ""), "\n")
}

// Commands returns the commands of all blocks of a text that have some.
func Commands(text string) []string {
	var commands []string
	for _, block := range Blocks(text) {
		if block.Language == Console {
			commands = append(commands, block.Commands()...)
		}
	}
	return commands
}

// Rows returns the cells of a text's tables, without their heads.
func Rows(text string) [][]string {
	var rows [][]string
	below := false // the rule that ends a table's head
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			below = false
		case strings.HasPrefix(line, "| ---"):
			below = true
		case below:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

var span = regexp.MustCompile("`([^`\n]+)`")

// Code returns the code within a text, what stands in its blocks left out.
func Code(text string) []string {
	var code []string
	for _, match := range span.FindAllStringSubmatch(fenced.ReplaceAllString("\n"+text, ""), -1) {
		code = append(code, match[1])
	}
	return code
}
