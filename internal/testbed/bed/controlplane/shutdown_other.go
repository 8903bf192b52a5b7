//go:build !linux

package main

// announceShutdowns does nothing: only on Linux the kubelet asks for shutdowns.
func announceShutdowns() {}
