package deploy

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// components returns the names of all Kustomize components.
func components(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("../config/components")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// withComponents builds the default configuration with components and an image from elsewhere, as users in a network of their own do.
func withComponents(t *testing.T, names ...string) []byte {
	t.Helper()
	text := "resources: [$CONFIG/default]\n" +
		"images: [{name: quay.io/piraeusdatastore/piraeus-ha-controller, newName: registry.example.com/ha, newTag: v9}]\n" +
		listOf(names)
	return kustomize(t, text)
}

// listOf returns the list of components of a kustomization.
func listOf(names []string) string {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = "$CONFIG/components/" + name
	}
	return "components: [" + strings.Join(paths, ", ") + "]\n"
}

// TestEachComponentTellsHowToUseIt because its kustomization is what a user reads of it, who finds it in the list of all.
func TestEachComponentTellsHowToUseIt(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("../docs/installation.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range components(t) {
		if !strings.Contains(string(list), "\n| `"+name+"` | ") {
			t.Errorf("docs/installation.md does not list %s", name)
		}
		content, err := os.ReadFile("../config/components/" + name + "/kustomization.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), "#   components: [github.com/piraeusdatastore/piraeus-ha-controller/config/components/"+name+"]") {
			t.Errorf("the kustomization of %s does not say how to use it", name)
		}
	}
}

// TestComponentsAddOnlyWhatTheyAreFor builds each component alone.
func TestComponentsAddOnlyWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	adds := map[string]struct {
		objects []string
		args    []string
		env     []string
	}{
		"critical-pods-quota":   {objects: []string{"ResourceQuota ha-controller/piraeus-ha-controller"}},
		"dry-run":               {args: []string{"--dry-run=true"}},
		"linstor-tls":           {env: []string{"LS_ROOT_CA_FILE", "LS_USER_CERTIFICATE_FILE", "LS_USER_KEY_FILE"}},
		"manage-all-pods":       {args: []string{"--pod-label-selector=linstor.csi.linbit.com/on-storage-lost!=keep"}},
		"network-policy":        {objects: []string{"NetworkPolicy ha-controller/piraeus-ha-controller"}},
		"priority-and-fairness": {objects: []string{"FlowSchema /piraeus-ha-controller", "PriorityLevelConfiguration /piraeus-ha-controller"}},
	}
	base := parseObjects(t, withComponents(t))
	before := deploymentOf(t, base)
	for _, name := range components(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, known := adds[name]
			if !known {
				t.Fatal("nothing is said here of this component")
			}
			all := parseObjects(t, withComponents(t, name))
			after := deploymentOf(t, all)
			if diff := cmp.Diff(want.objects, added(ids(base), ids(all))); diff != "" {
				t.Errorf("objects that it adds (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.args, added(before.Spec.Template.Spec.Containers[0].Args, after.Spec.Template.Spec.Containers[0].Args)); diff != "" {
				t.Errorf("arguments that it adds (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.env, added(envNames(before), envNames(after))); diff != "" {
				t.Errorf("environment that it adds (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAllComponentsTogether builds them as one: what each adds is there, and the program takes the arguments and finds LINSTOR's
// certificates where they are mounted.
func TestAllComponentsTogether(t *testing.T) {
	t.Parallel()
	d := deploymentOf(t, parseObjects(t, withComponents(t, components(t)...)))
	c := d.Spec.Template.Spec.Containers[0]
	if c.Image != "registry.example.com/ha:v9" {
		t.Errorf("image = %q, and another one was asked for", c.Image)
	}
	o := parsed(t, c)
	if !o.DryRun {
		t.Error("it acts")
	}
	for text, selected := range map[string]bool{
		"": true,
		"linstor.csi.linbit.com/on-storage-lost=remove": true,
		"linstor.csi.linbit.com/on-storage-lost=keep":   false,
	} {
		set, err := labels.ConvertSelectorToLabelsMap(text)
		if err != nil {
			t.Fatal(err)
		}
		if o.PodSelector.Matches(set) != selected {
			t.Errorf("a pod with the labels %q is selected: %t, want %t", text, !selected, selected)
		}
	}
	certificatesAreMounted(t, d)
}

// certificatesAreMounted checks that each file that LINSTOR's client is told of is a key of the Secret that is mounted.
func certificatesAreMounted(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	spec := d.Spec.Template.Spec
	mounts := spec.Containers[0].VolumeMounts
	if len(mounts) != 1 || len(spec.Volumes) != 1 || spec.Volumes[0].Secret == nil || spec.Volumes[0].Name != mounts[0].Name {
		t.Fatalf("mounted are %+v of %+v", mounts, spec.Volumes)
	}
	if secret := spec.Volumes[0].Secret.SecretName; secret != "linstor-client-tls" {
		t.Errorf("the Secret is %q", secret)
	}
	for name, key := range map[string]string{"LS_ROOT_CA_FILE": "ca.crt", "LS_USER_CERTIFICATE_FILE": "tls.crt", "LS_USER_KEY_FILE": "tls.key"} {
		if got, want := envValue(spec.Containers[0], name), mounts[0].MountPath+"/"+key; got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	config, err := linstor.ConfigFromEnv(func(name string) (string, bool) {
		return envValue(spec.Containers[0], name), name == "LS_CONTROLLERS"
	})
	if err != nil || !strings.HasPrefix(config.Endpoints()[0], "https://") {
		t.Errorf("LINSTOR is at %v, %v: without TLS no certificate is used", config, err)
	}
}

// TestSettingsOfLinstorOutliveAnUpgrade has a user's overlay name LINSTOR. The base is replaced by an upgrade, the overlay is not, so
// that the setting stays, also beside the component that sets it.
func TestSettingsOfLinstorOutliveAnUpgrade(t *testing.T) {
	t.Parallel()
	for _, component := range []string{"", "components: [$CONFIG/components/linstor-tls]\n"} {
		d := deploymentOf(t, parseObjects(t, kustomize(t, "resources: [$CONFIG/default]\n"+component+`
patches:
  - patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: piraeus-ha-controller, namespace: ha-controller}
      spec:
        template:
          spec:
            containers:
              - name: controller
                env: [{name: LS_CONTROLLERS, value: "https://linstor.example.com:3371"}]
`)))
		if got := envValue(d.Spec.Template.Spec.Containers[0], "LS_CONTROLLERS"); got != "https://linstor.example.com:3371" {
			t.Errorf("with %q LINSTOR is at %s", component, got)
		}
	}
}

// TestComponentsInACluster applies the base with all components that let it act in a cluster that has no certificates; a node crashes, and
// the workload moves.
func TestComponentsInACluster(t *testing.T) {
	t.Parallel()
	acting := slices.DeleteFunc(components(t), func(name string) bool { return name == "dry-run" || name == "linstor-tls" })
	text := "resources: [$CONFIG/default]\n" + listOf(acting)
	b := bedtest.Empty(t, "components", bed.Options{})
	mustKubectl(t, b, "apply --server-side --filename="+writeObjects(t, kustomize(t, text)))
	s := bedtest.New(t, b, 3)
	s.Must(b.WaitController(s.Ctx))
	w := s.Workload("db")
	pod := s.Start(w)
	crashed := time.Now()
	s.Crash(pod.Spec.NodeName)
	s.WaitMoved(w, pod.Spec.NodeName, crashed)
}

// deploymentOf returns the only Deployment among objects.
func deploymentOf(t *testing.T, all []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	var found []*appsv1.Deployment
	for _, o := range all {
		if o.GetKind() == "Deployment" {
			d := &appsv1.Deployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, d, true); err != nil {
				t.Fatal(err)
			}
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d Deployments among %v", len(found), ids(all))
	}
	return found[0]
}

func ids(all []*unstructured.Unstructured) (names []string) {
	for _, o := range all {
		names = append(names, id(o))
	}
	return names
}

// added returns what is in one list and not in the other, sorted.
func added(before, after []string) (more []string) {
	for _, name := range after {
		if !slices.Contains(before, name) {
			more = append(more, name)
		}
	}
	slices.Sort(more)
	return more
}

func envNames(d *appsv1.Deployment) (names []string) {
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		names = append(names, e.Name)
	}
	return names
}

func envValue(c corev1.Container, name string) string {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	if i < 0 {
		return ""
	}
	return c.Env[i].Value
}
