package permissions

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// interval is how often the controller asks until it has all permissions: as often as the kubelet asks whether it is ready. An attempt takes
// as long at most.
const interval = 5 * time.Second

// Review asks the API server, when the controller starts, whether it may do what it has to. Later the API server's answers show what it forbids.
type Review struct {
	client client.Client
	wanted []Permission
	// show shows how many are missing; NaN while that is unknown.
	show func(missing float64)
	log  logr.Logger
	// passed is closed once nothing is missing, or the controller may not ask.
	passed chan struct{}
}

// NewReview returns a review of the client's own permissions. It calls show with the number of missing permissions, or NaN while that is
// unknown.
func NewReview(c client.Client, wanted []Permission, show func(missing float64), log logr.Logger) *Review {
	show(math.NaN())
	return &Review{client: c, wanted: wanted, show: show, log: log, passed: make(chan struct{})}
}

// Run asks until all permissions are granted, or ctx ends. It logs what is missing whenever that changes.
func (r *Review) Run(ctx context.Context) {
	reported := ""
	for {
		missing, err := r.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		shown, status := float64(len(missing)), list(missing)
		if err != nil {
			shown, status = math.NaN(), "unknown"
		}
		r.show(shown)
		if status != reported {
			reported = status
			r.report(missing, err)
		}
		if err == nil && len(missing) == 0 || apierrors.IsForbidden(err) {
			close(r.passed)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

func (r *Review) ask(ctx context.Context) ([]Permission, error) {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	return Denied(ctx, r.client, "", r.wanted)
}

func (r *Review) report(missing []Permission, err error) {
	switch {
	case err != nil:
		r.log.Error(err, "Cannot read which permissions the controller has")
	case len(missing) > 0:
		r.log.Error(nil, "Permissions are missing: apply the roles of deploy/all.yaml again", "missing", list(missing))
	default:
		r.log.Info("All permissions are granted")
	}
}

// Passed returns an error until all permissions have been granted once. A replica that loses some later stays ready: it can do more than none.
func (r *Review) Passed(*http.Request) error {
	select {
	case <-r.passed:
		return nil
	default:
		return errors.New("the API server has not granted all permissions yet: see the log")
	}
}

func list(permissions []Permission) string {
	all := make([]string, len(permissions))
	for i, p := range permissions {
		all[i] = p.String()
	}
	return strings.Join(all, ", ")
}
