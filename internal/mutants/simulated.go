package main

import "regexp"

// simulated are the rules that the random simulation has to miss by itself, however well other tests know them: what is switched off
// must lead to a history that ends badly.
var simulated = []edit{
	{
		"the guard is off", "internal/failover/guard.go",
		"if «!limit.exceeded(len(lost), len(lost)+healthy)» {", "(… || mutantIs(§))",
	},
}

// failingSeed is how the simulation names the history that has ended badly.
var failingSeed = regexp.MustCompile(`seed (\d+): `)
