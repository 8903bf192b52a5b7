package permissions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// interval is how often the controller asks while it has all permissions: roles are hardly ever overwritten.
	interval = 10 * time.Minute
	// startInterval is how often it asks after its start until it has them, as often as the kubelet asks whether it is ready. A round of
	// questions takes as long at most.
	startInterval = 5 * time.Second
	// missingInterval is how often it asks while some are missing that it has had, or nobody tells.
	missingInterval = time.Minute
)

// errUntold is the answer before the API server has given one.
var errUntold = errors.New("the API server has not said yet what the controller may do")

// Monitor asks again and again whether the controller may do what it has to. Others can take its permissions away while it runs, as
// whoever applies a role of the same name does, and Kubernetes tells nobody.
type Monitor struct {
	client client.Client
	wanted []Permission
	// show shows how many are missing; NaN while nobody knows.
	show func(missing float64)
	log  logr.Logger

	mu sync.Mutex
	// missing and err are the newest answer.
	missing []Permission
	err     error
	// ready is set once the controller has had all permissions since it was started, or may not ask.
	ready bool

	// said is the last that was logged, and saidAt when; of the goroutine of Run only.
	said   string
	saidAt time.Time
}

// NewMonitor returns a monitor of the client's own permissions. show is called with the number of those that are missing, or NaN
// while it is not known.
func NewMonitor(c client.Client, wanted []Permission, show func(missing float64), log logr.Logger) *Monitor {
	show(math.NaN())
	return &Monitor{client: c, wanted: wanted, show: show, log: log, err: errUntold}
}

// Run asks until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	for ctx.Err() == nil {
		m.ask(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(m.pause()):
		}
	}
}

// ask asks once, and says what has changed.
func (m *Monitor) ask(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, startInterval)
	defer cancel()
	missing, err := Denied(asking, m.client, "", m.wanted)
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	m.missing, m.err = missing, err
	m.ready = m.ready || err == nil && len(missing) == 0 || apierrors.IsForbidden(err)
	m.mu.Unlock()
	switch {
	case err != nil:
		m.show(math.NaN())
		m.say("nobody tells", func() { m.log.Error(err, "Cannot tell whether permissions are missing") })
	case len(missing) > 0:
		m.show(float64(len(missing)))
		m.say(list(missing), func() {
			m.log.Error(nil, "Permissions are missing: apply the roles of deploy/all.yaml again; the command check says who changed them",
				"missing", list(missing))
		})
	default:
		m.show(0)
		if m.said != "" {
			m.log.Info("All permissions are there")
		}
		m.said = ""
	}
}

// say logs what has not been said yet, and what lasts as often as it would be asked for otherwise.
func (m *Monitor) say(what string, log func()) {
	if now := time.Now(); what != m.said || now.Sub(m.saidAt) >= interval {
		m.said, m.saidAt = what, now
		log()
	}
}

// pause returns how long the newest answer counts.
func (m *Monitor) pause() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.ready:
		return startInterval
	case m.err != nil || len(m.missing) > 0:
		return missingInterval
	default:
		return interval
	}
}

// Checks returns the conditions of being ready, by name: that the API server has said what the controller may do, and one for each
// permission, so that the names tell which is missing. Once all have been met they stay so: a leader that lacks permissions later can
// do more than none, and its metrics would be lost.
func (m *Monitor) Checks() map[string]func(*http.Request) error {
	checks := map[string]func(*http.Request) error{"permissions": func(*http.Request) error { return m.told() }}
	for _, p := range m.wanted {
		checks["may "+p.String()] = func(*http.Request) error { return m.has(p) }
	}
	return checks
}

// told returns an error while nobody knows which permissions are missing.
func (m *Monitor) told() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready || m.err == nil {
		return nil
	}
	return m.err
}

// has returns an error if a permission is known to be missing since the start.
func (m *Monitor) has(p Permission) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready || m.err != nil || !slices.Contains(m.missing, p) {
		return nil
	}
	return fmt.Errorf("the controller may not %s: apply the roles of deploy/all.yaml", p)
}

func list(permissions []Permission) string {
	all := make([]string, len(permissions))
	for i, p := range permissions {
		all[i] = p.String()
	}
	return strings.Join(all, ", ")
}
