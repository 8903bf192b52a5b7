package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
)

// derived returns the mutants that the source of a file shows by itself, but for the functions and constants in skip.
func derived(file string, source []byte, skip []string) ([]mutant, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	d := &deriver{file: file, source: source, skip: skip, base: fset.File(tree.FileStart).Base()}
	for _, decl := range tree.Decls {
		switch decl := decl.(type) {
		case *ast.GenDecl:
			d.where = ""
			d.tables(decl)
			d.lists(decl)
			d.limits(decl)
		case *ast.FuncDecl:
			if d.where = decl.Name.Name; !slices.Contains(skip, d.where) && decl.Body != nil {
				d.function(decl.Body)
			}
		}
	}
	return d.found, nil
}

type deriver struct {
	file   string
	source []byte
	base   int
	skip   []string
	where  string // the function, empty outside
	found  []mutant
}

func (d *deriver) offset(pos token.Pos) int { return int(pos) - d.base }

func (d *deriver) textOf(node ast.Node) string {
	return string(d.source[d.offset(node.Pos()):d.offset(node.End())])
}

// named returns a mutant without a change.
func (d *deriver) named(what string) mutant {
	where := d.file + ": "
	if d.where != "" {
		where += d.where + ": "
	}
	return mutant{name: where + oneLine(what), file: d.file}
}

// replace adds a mutant that needs a compilation of its own.
func (d *deriver) replace(from, to token.Pos, text, what string) {
	m := d.named(what)
	m.start, m.end, m.text = d.offset(from), d.offset(to), text
	d.found = append(d.found, m)
}

// wrap adds a switch around an expression.
func (d *deriver) wrap(node ast.Node, before, after, what string) {
	m := d.named(what)
	m.start, m.end, m.open, m.close = d.offset(node.Pos()), d.offset(node.End()), before, after
	d.found = append(d.found, m)
}

// tables takes the entries out of tables such as
//
//	var rules = []rule{{"a name", f}, ...}
func (d *deriver) tables(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || decl.Tok != token.VAR || len(value.Values) != 1 {
			continue
		}
		table, ok := value.Values[0].(*ast.CompositeLit)
		if !ok {
			continue
		}
		for i, element := range table.Elts {
			entry, ok := element.(*ast.CompositeLit)
			if !ok || len(entry.Elts) == 0 {
				continue
			}
			name := value.Names[0].Name
			m := d.named(fmt.Sprintf("%s without %s", name, d.textOf(entry.Elts[0])))
			m.statement = fmt.Sprintf("%[1]s = append(%[1]s[:%[2]d:%[2]d], %[1]s[%[2]d+1:]...)", name, i)
			d.found = append(d.found, m)
		}
	}
}

// lists makes each word of lists such as
//
//	var behind = []string{"Outdated", "Failed"}
//
// one that nothing is.
func (d *deriver) lists(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || decl.Tok != token.VAR || len(value.Values) != 1 {
			continue
		}
		list, ok := value.Values[0].(*ast.CompositeLit)
		if !ok || list.Type == nil || d.textOf(list.Type) != "[]string" {
			continue
		}
		for _, word := range list.Elts {
			d.other(word, value.Names[0].Name+" without "+d.textOf(word))
		}
	}
}

// other makes a value one that nothing is.
func (d *deriver) other(value ast.Expr, what string) { d.wrap(value, "mutantOther(§, ", ")", what) }

// limits doubles and halves constant durations.
func (d *deriver) limits(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for i, v := range value.Values {
			name := value.Names[i].Name
			if text := d.textOf(v); duration.MatchString(text) && !slices.Contains(d.skip, name) {
				d.replace(v.Pos(), v.End(), "2 * ("+text+")", name+" is twice as long")
				d.replace(v.Pos(), v.End(), "("+text+") / 2", name+" is half as long")
			}
		}
	}
}

var (
	duration = regexp.MustCompile(`\btime\.(Milli|Micro)?(S|s)econd\b|\btime\.(Minute|Hour)\b`)
	// ofError matches conditions about whether something failed, which are not about rules.
	ofError = regexp.MustCompile(`(?i)\berr\b`)
)

func (d *deriver) function(body *ast.BlockStmt) {
	chained := map[ast.Expr]bool{} // operators within a longer chain of the same
	for node := range ast.Preorder(body) {
		switch node := node.(type) {
		case *ast.BinaryExpr:
			d.operator(node, chained)
		case *ast.IfStmt:
			if !isOperator(node.Cond, token.LOR) {
				d.never(node.Cond)
			}
		case *ast.SwitchStmt:
			d.cases(node)
		case *ast.CallExpr:
			d.call(node)
		}
	}
}

// operator makes each operand of a chain of && or || without effect, and shifts a limit by one.
func (d *deriver) operator(node *ast.BinaryExpr, chained map[ast.Expr]bool) {
	switch node.Op {
	case token.LAND, token.LOR:
		if chained[node] {
			return
		}
		neutral := " || mutantIs(§))"
		if node.Op == token.LOR {
			neutral = " && !mutantIs(§))"
		}
		for _, operand := range operands(node, node.Op, chained) {
			if text := d.textOf(operand); !ofError.MatchString(text) {
				d.wrap(operand, "(", neutral, "without "+text)
			}
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		other := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[node.Op]
		// The two operators differ where both sides are equal.
		d.wrap(node, "((", fmt.Sprintf(") != (mutantIs(§) && (%s) == (%s)))", d.textOf(node.X), d.textOf(node.Y)),
			fmt.Sprintf("%s with %s", d.textOf(node), other))
	default:
	}
}

// operands returns the operands of a chain, and notes the operators within.
func operands(e ast.Expr, op token.Token, chained map[ast.Expr]bool) []ast.Expr {
	node, ok := e.(*ast.BinaryExpr)
	if !ok || node.Op != op {
		return []ast.Expr{e}
	}
	chained[node] = true
	return append(operands(node.X, op, chained), operands(node.Y, op, chained)...)
}

func isOperator(e ast.Expr, op token.Token) bool {
	node, ok := e.(*ast.BinaryExpr)
	return ok && node.Op == op
}

// never makes a condition false.
func (d *deriver) never(condition ast.Expr) {
	if text := d.textOf(condition); !ofError.MatchString(text) {
		d.wrap(condition, "((", ") && !mutantIs(§))", "never "+text)
	}
}

// cases makes each value of a switch without effect, unless it has none.
func (d *deriver) cases(s *ast.SwitchStmt) {
	otherwise := slices.ContainsFunc(s.Body.List, func(statement ast.Stmt) bool {
		clause, ok := statement.(*ast.CaseClause)
		return ok && clause.List == nil
	})
	for _, statement := range s.Body.List {
		clause, ok := statement.(*ast.CaseClause)
		if !ok || s.Tag != nil && len(clause.Body) == 0 && !otherwise {
			continue
		}
		for _, value := range clause.List {
			if s.Tag == nil {
				d.never(value)
			} else {
				d.other(value, "no case "+d.textOf(value))
			}
		}
	}
}

// call takes an argument out of what chooses among times and durations, and out of what asks for flags. Of a gate it makes the condition false.
func (d *deriver) call(node *ast.CallExpr) {
	if method, ok := node.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "has" && !node.Ellipsis.IsValid() {
		for _, flag := range node.Args {
			d.other(flag, d.textOf(node)+" without "+d.textOf(flag))
		}
	}
	name, ok := node.Fun.(*ast.Ident)
	if !ok || node.Ellipsis.IsValid() {
		return
	}
	if name.Name == "when" {
		d.never(node.Args[0])
	}
	years, ok := map[string]int{"latest": -1000, "earliest": 1000, "max": 0, "min": 0}[name.Name]
	if !ok {
		return
	}
	for i, argument := range node.Args {
		what := fmt.Sprintf("%s without %s", name.Name, d.textOf(argument))
		if years != 0 {
			d.wrap(argument, "mutantYears(§, "+strconv.Itoa(years)+", ", ")", what)
		} else if len(node.Args) > 1 {
			other := d.textOf(node.Args[(i+1)%len(node.Args)])
			d.wrap(argument, "mutantInstead(§, "+other+", ", ")", what)
		}
	}
}
