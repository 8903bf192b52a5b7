package bed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExpand(t *testing.T) {
	env := []corev1.EnvVar{{Name: "POD_NAME", Value: "old"}, {Name: "POD_NAME", Value: "ha-1"}, {Name: "EMPTY"}}
	for name, tc := range map[string]struct{ text, want string }{
		"a plain text stays":                        {"--v=2", "--v=2"},
		"a reference becomes the last value":        {"--name=$(POD_NAME)!", "--name=ha-1!"},
		"an empty value is a value":                 {"[$(EMPTY)]", "[]"},
		"an unknown reference stays":                {"$(NOBODY)/$(POD_NAME)", "$(NOBODY)/ha-1"},
		"a doubled dollar sign escapes":             {"$$(POD_NAME)", "$(POD_NAME)"},
		"a reference that is not closed stays":      {"$(POD_NAME", "$(POD_NAME"},
		"a dollar sign at the end stays":            {"5$", "5$"},
		"what the shell would expand stays as well": {"$POD_NAME", "$POD_NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := expand(tc.text, env); got != tc.want {
				t.Errorf("expand(%q) = %q, want %q", tc.text, got, tc.want)
			}
		})
	}
}

func TestPodEnv(t *testing.T) {
	container := corev1.Container{
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("64Mi")}},
		Env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "WHO", Value: "I am $(POD_NAME)"},
			{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}},
		},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ha-1"}}
	got, err := podEnv(pod, &container)
	want := []corev1.EnvVar{{Name: "POD_NAME", Value: "ha-1"}, {Name: "WHO", Value: "I am ha-1"}, {Name: "GOMEMLIMIT", Value: "67108864"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("podEnv: %v, -want +got:\n%s", err, diff)
	}
}
