package check

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestTheWayToLinstorFromOutside(t *testing.T) {
	t.Parallel()
	const general = "name the LINSTOR controllers by the environment variable LS_CONTROLLERS and check LS_ROOT_CA_FILE and the other " +
		"LS_* variables; without LINSTOR nothing is ever moved"
	for name, c := range map[string]struct {
		linstor string
		inside  bool
		want    string
	}{
		"a Service of another namespace": {
			linstor: "http://linstor-controller.piraeus-datastore.svc:3370",
			want: "the Deployment uses http://linstor-controller.piraeus-datastore.svc:3370; from here: kubectl -n piraeus-datastore port-forward " +
				"service/linstor-controller 3370:3370, and meanwhile LS_CONTROLLERS=http://localhost:3370",
		},
		"a Service of the same namespace": {
			linstor: "http://linstor",
			want: "the Deployment uses http://linstor; from here: kubectl -n ha-controller port-forward service/linstor 3370:3370, and meanwhile " +
				"LS_CONTROLLERS=http://localhost:3370",
		},
		"TLS": {
			linstor: "https://linstor-controller.piraeus-datastore",
			want: "the Deployment uses https://linstor-controller.piraeus-datastore; from here: kubectl -n piraeus-datastore port-forward " +
				"service/linstor-controller 3371:3371, and meanwhile LS_CONTROLLERS=https://localhost:3371 with LS_ROOT_CA_FILE, LS_USER_CERTIFICATE_FILE and " +
				"LS_USER_KEY_FILE from its Secret; where the certificate does not name localhost, let /etc/hosts lead the Service's name to 127.0.0.1 and use that",
		},
		"LINSTOR is outside of the cluster": {linstor: "http://linstor.example.com:3370", want: general},
		"an address":                        {linstor: "http://192.0.2.1:3370", want: general},
		"a Deployment that does not say":    {want: general},
		"the controller's own pod":          {linstor: "http://linstor-controller.piraeus-datastore.svc:3370", inside: true, want: general},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := Facts{Outside: !c.inside, Controller: Controller{Name: "ha-controller/piraeus-ha-controller", Linstor: c.linstor}}
			if got := wayToLinstor(f); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestTheDeploymentTellsItsLinstor(t *testing.T) {
	t.Parallel()
	onBench(t, func(b *bench) {
		b.own = false
		c := &b.deployment.Spec.Template.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: linstorControllers, Value: "http://linstor-controller.piraeus-datastore.svc:3370"})
		b.Linstor.Stop()
		out, _ := b.check()
		if want := "Remedy: the Deployment uses http://linstor-controller.piraeus-datastore.svc:3370; from here: kubectl -n"; !strings.Contains(out, want) {
			t.Errorf("the answer has no %q:\n%s", want, out)
		}
	})
}
