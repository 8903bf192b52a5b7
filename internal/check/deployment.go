package check

import (
	"context"
	"regexp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
)

const (
	// containerName is the controller's container in the shipped manifest.
	containerName = "controller"
	// defaultAccount is the ServiceAccount of the shipped manifest.
	defaultAccount = "ha-controller"
	// linstorControllers is the environment variable that names LINSTOR.
	linstorControllers = "LS_CONTROLLERS"
	// defaultDeployment is the Deployment of the shipped manifest.
	defaultDeployment = "piraeus-ha-controller"
)

// shippedArguments are those of the shipped manifest that decide what the controller must be allowed to do.
var shippedArguments = []string{"--leader-election=true"}

// deployment is what the controller's Deployment says.
type deployment struct {
	Controller
	options options.Options
	account string // user name of its ServiceAccount
	paused  string // why fail-over is paused; empty while it is not
}

// readDeployment reads the controller's Deployment. Whatever cannot be known is as in the shipped manifest.
func readDeployment(ctx context.Context, c client.Reader, name types.NamespacedName, overrides []string) (deployment, error) {
	result := deployment{Controller: Controller{Name: name.String()}, account: permissions.AccountUser(name.Namespace, defaultAccount)}
	var d appsv1.Deployment
	err := c.Get(ctx, name, &d)
	args := shippedArguments
	switch {
	case apierrors.IsNotFound(err):
		result.Missing = true
	case err != nil:
		result.Error = err.Error()
	default:
		result.Ready = d.Status.ReadyReplicas
		args = arguments(d)
		result.Linstor = linstorOf(d)
		if account := d.Spec.Template.Spec.ServiceAccountName; account != "" {
			result.account = permissions.AccountUser(name.Namespace, account)
		}
		if value, ok := d.Annotations[cluster.AnnotationPause]; ok && value != "false" {
			result.paused = "annotation " + cluster.AnnotationPause + " of Deployment " + name.String() + " pauses all fail-over"
		}
	}
	result.options, err = options.Parse(slices.Concat(args, overrides))
	if err != nil && len(args) > 0 {
		// The controller refuses them as well, unless its release is another one.
		result.Arguments = err.Error()
		result.options, err = options.Parse(slices.Concat(shippedArguments, overrides))
	}
	if other := result.options.PauseDeployment; other != "" && other != name.Name {
		result.paused = ""
	}
	return result, err
}

// linstorOf returns the LINSTOR that the controller's container uses, as LS_CONTROLLERS says it; empty where that is not in the Deployment.
func linstorOf(d appsv1.Deployment) string {
	containers := d.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == containerName })
	if i < 0 {
		return ""
	}
	for _, e := range containers[i].Env {
		if e.Name == linstorControllers {
			return e.Value
		}
	}
	return ""
}

// reference is how Kubernetes spells the use of an environment variable in an argument.
var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// arguments returns the arguments of the controller's container as its process gets them, but for its pod's name.
func arguments(d appsv1.Deployment) []string {
	containers := d.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == containerName })
	if i < 0 && len(containers) == 0 {
		return nil
	}
	c := containers[max(i, 0)]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			env[e.Name] = map[string]string{"metadata.namespace": d.Namespace}[e.ValueFrom.FieldRef.FieldPath]
			if env[e.Name] == "" {
				env[e.Name] = d.Name
			}
		}
	}
	args := make([]string, len(c.Args))
	for n, arg := range c.Args {
		args[n] = reference.ReplaceAllStringFunc(arg, func(ref string) string {
			if value, ok := env[reference.FindStringSubmatch(ref)[1]]; ok {
				return value
			}
			return ref
		})
	}
	return args
}
