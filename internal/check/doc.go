// Package check is the command "piraeus-ha-controller check": a client that prints what a replica of the controller foretells (package forecast). It has
// no rule of its own, and changes nothing. In the controller's pod it asks the replica there; as a plugin of kubectl it runs itself in the leader's pod.
package check
