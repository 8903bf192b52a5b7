// Command mutants breaks the rules of the controller, one at a time, and shows which test notices each.
//
// It changes copies of the source files, which the Go tool takes in place of the originals (go build -overlay), so that
// the tree stays as it is. What it breaks is of two kinds:
//
//   - What it finds in the source of the targets (targets.go): every entry of a table of rules, every word of a list, every
//     case of a switch, every condition and every operand of one, every flag that is asked for, every time that a clock starts at, every limit. A rule that is new is
//     broken as well.
//   - What is written down by hand (edits.go), because the source does not show that it protects: preconditions,
//     fresh reads, the order of the steps. Where the source no longer has the text, the program says so and fails.
//
// Almost all are switches, which are compiled into the tests at once; a variable of the environment turns one of them on. A
// look at each test alone shows which switches it comes by, so that a mutant is shown to the tests that can notice it, the
// quick ones first, until one fails: first to those of its own package, and then, if they notice nothing, to those of
// the packages above, the simulation last. What no test notices survives. The program fails when anything survives that is not declared harmless
// (harmless.go).
//
// Some rules are switched off once more (simulated.go) and shown to the random simulation alone, which must find a history that ends
// badly among so many.
//
// Run it by "make mutants"; with ARGS="-run gates" for some of them, with ARGS=-list to read their names.
package main
