// Package bench measures what docs/benchmarks.md claims: how long fail-overs take on the test bed, what the
// controller costs at rest, and how it takes a storm.
//
// A Row is a line of the customer's table: what must be reached, and what it is compared with. Rows that
// need the same cluster share a Group, which brings it up, plays the losses and returns what it measured.
// Whatever is compared is measured in the same run, on the same machine, so that the ratio can be relied
// upon where the seconds can not. Times are taken in this process, when a watch of the API tells it.
package bench
