//go:build !linux

package main

// dieWithParent does nothing: only Linux can tie a process to the one that started it.
func dieWithParent() {}
