package bed

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// podEnv returns the environment of a container as the kubelet would set it, in order, with references
// to earlier variables expanded. Values from ConfigMaps and Secrets are refused, unless they are optional.
func podEnv(pod *corev1.Pod, container *corev1.Container) ([]corev1.EnvVar, error) {
	var env []corev1.EnvVar
	if len(container.EnvFrom) > 0 {
		return nil, fmt.Errorf("pod %s/%s: the test bed does not know envFrom", pod.Namespace, pod.Name)
	}
	for _, e := range container.Env {
		if secret := e.ValueFrom; secret != nil && secret.SecretKeyRef != nil && secret.SecretKeyRef.Optional != nil && *secret.SecretKeyRef.Optional {
			continue // the bed has no Secrets
		}
		value := expand(e.Value, env)
		if e.ValueFrom != nil {
			var err error
			if value, err = valueFrom(pod, container, e.ValueFrom); err != nil {
				return nil, fmt.Errorf("pod %s/%s: environment variable %s: %w", pod.Namespace, pod.Name, e.Name, err)
			}
		}
		env = append(env, corev1.EnvVar{Name: e.Name, Value: value})
	}
	return env, nil
}

// valueFrom returns what the downward API says.
func valueFrom(pod *corev1.Pod, container *corev1.Container, source *corev1.EnvVarSource) (string, error) {
	switch {
	case source.FieldRef != nil:
		return fieldValue(pod, source.FieldRef.FieldPath)
	case source.ResourceFieldRef != nil:
		return resourceValue(container, source.ResourceFieldRef)
	default:
		return "", errors.New("the test bed knows values from fields and resources only")
	}
}

// fieldValue returns a field of the pod by its path.
func fieldValue(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP":
		return pod.Status.PodIP, nil
	case "status.hostIP":
		return pod.Status.HostIP, nil
	default:
		return "", fmt.Errorf("the test bed does not know the field %q", path)
	}
}

// resourceValue returns a request or limit of the container, in units of the divisor, rounded up.
func resourceValue(container *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	lists := map[string]corev1.ResourceList{"limits": container.Resources.Limits, "requests": container.Resources.Requests}
	quantity, ok := lists[kind][corev1.ResourceName(name)]
	if !ok {
		return "", fmt.Errorf("the container does not set %s", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	units := (quantity.MilliValue() + divisor.MilliValue() - 1) / divisor.MilliValue()
	return strconv.FormatInt(units, 10), nil
}

// expand replaces references of the form $(NAME) by the values of env, as Kubernetes does in arguments
// and values: unknown names are left as they are, and $$ escapes a dollar sign.
func expand(text string, env []corev1.EnvVar) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		value, known := lookup(name, env)
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "(") && closed && known:
			out.WriteString(value)
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}

// lookup returns the last value of a variable.
func lookup(name string, env []corev1.EnvVar) (value string, ok bool) {
	for _, e := range env {
		if e.Name == name {
			value, ok = e.Value, true
		}
	}
	return value, ok
}
