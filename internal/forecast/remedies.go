package forecast

import "strings"

const (
	// remedyOfMoving is for pods that are being moved, whatever the reason of the loss.
	remedyOfMoving = "nothing for the pod; see to its node. Where the pod is still there a minute later, kubectl describe pod -n NAMESPACE POD " +
		"says what holds it back"
	// remedyOfWaiting is for what passes by itself.
	remedyOfWaiting = "wait, and check again; a pod whose node is lost before that stays until the node is back"
)

// filled puts a name into a remedy where it stands for nothing else.
func filled(remedy, placeholder string, names []string) string {
	if len(names) != 1 || names[0] == "" {
		return remedy
	}
	return strings.ReplaceAll(remedy, placeholder, names[0])
}

// named puts "namespace/name" into the one command of a remedy that asks for both. A remedy that asks for another name is left as it is.
func named(remedy, object, placeholder string) string {
	namespace, name, ok := strings.Cut(object, "/")
	rest := strings.ReplaceAll(remedy, "NAMESPACE", namespace)
	if !ok || !strings.Contains(rest, placeholder) {
		return remedy
	}
	return strings.ReplaceAll(rest, placeholder, name)
}
