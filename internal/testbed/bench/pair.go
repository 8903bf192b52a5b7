package bench

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// driverMemory is for how long the CSI driver keeps what it has read of nodes: it attaches nothing to one that has come back since.
const driverMemory = time.Minute

// webhookDelay is how long the admission of a deletion takes.
const webhookDelay = 10 * time.Second

// trouble is what keeps the other node's fail-over waiting.
type trouble struct {
	name string
	// make makes it for a trio, and returns what ends it.
	make func(ctx context.Context, t *trio) (end func(context.Context) error, err error)
}

// troubles are those of the other node. The first two are what the rest is compared with.
var troubles = []trouble{
	{"one node alone", nil},
	{"two nodes at once, nothing else", func(context.Context, *trio) (func(context.Context) error, error) {
		return func(context.Context) error { return nil }, nil
	}},
	{"two nodes at once, LINSTOR does not answer on the volume of the other", hangAnswers},
	{fmt.Sprintf("two nodes at once, a webhook takes %s for the pod of the other", webhookDelay), delayDeletion},
}

// groupPair loses two nodes at once, of which one has trouble, and looks at the other one.
var groupPair = Group{
	Name: "two nodes at once", Rows: []string{rowPair.Key}, Calm: true,
	run: func(ctx context.Context, s Settings) (Results, error) {
		losses := make([][]loss, len(troubles))
		err := withCluster(ctx, s, "pair", bed.Options{}, func(ctx context.Context, c *cluster) error {
			// The third one stays well, so that two lost nodes are no suspect part of the cluster.
			trios, err := newTrios(ctx, c, 3)
			if err != nil {
				return err
			}
			for range s.Runs {
				for i, of := range troubles {
					if err := pause(ctx, driverMemory); err != nil {
						return err
					}
					l, err := of.play(ctx, trios[0], trios[1])
					if err != nil {
						return fmt.Errorf("%s: %w", of.name, err)
					}
					losses[i] = append(losses[i], l)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		var measures []Measure
		for i, of := range troubles {
			m := toRunning(variant{name: of.name}, losses[i])
			m.Baseline = i == 0
			measures = append(measures, m)
		}
		return Results{rowPair.Key: measures}, nil
	},
}

// play loses the node of the one trio, and that of the other in trouble at the same time, and heals both.
func (of trouble) play(ctx context.Context, one, other *trio) (loss, error) {
	if of.make == nil {
		l, err := one.crash(ctx)
		if err != nil {
			return l, err
		}
		return l, one.heal(ctx)
	}
	before, ok := other.seen.current(other.pod())
	if !ok {
		return loss{}, fmt.Errorf("pod %s does not run", other.pod())
	}
	end, err := of.make(ctx, other)
	if err != nil {
		return loss{}, err
	}
	began := time.Now()
	l, err := one.lose(ctx, of.name, func(node string) { one.Crash(node, before.node) })
	if endErr := end(ctx); err == nil {
		err = endErr
	}
	if err != nil {
		return l, err
	}
	waiting, cancel := context.WithTimeout(ctx, lossTimeout)
	defer cancel()
	if err := other.WaitFor(waiting, "a replacement of "+other.pod(), func() (bool, error) {
		_, ok := other.seen.replacement(before, began)
		return ok, nil
	}); err != nil {
		return l, err
	}
	if err := one.heal(ctx); err != nil {
		return l, err
	}
	return l, other.heal(ctx)
}

// hangAnswers keeps LINSTOR from answering on the volume of a trio.
func hangAnswers(_ context.Context, t *trio) (func(context.Context) error, error) {
	ended := make(chan struct{})
	t.LINSTOR.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path+"/", "/resource-definitions/"+t.volume+"/") {
			return false
		}
		select {
		case <-ended:
		case <-r.Context().Done():
		}
		return false
	})
	return func(context.Context) error {
		t.LINSTOR.Intercept(nil)
		close(ended)
		return nil
	}, nil
}

// delayDeletion has an admission webhook take its time for each deletion of a trio's pod.
func delayDeletion(ctx context.Context, t *trio) (func(context.Context) error, error) {
	server := httptest.NewTLSServer(http.HandlerFunc(admitLate))
	url := server.URL + "/"
	none, ignore := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Ignore
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "late"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "late.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: certificate(server.Certificate())},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: t.workload.Selector()},
			SideEffects:             &none,
			FailurePolicy:           &ignore,
			TimeoutSeconds:          new(int32(webhookDelay.Seconds()) + 5),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
	if err := t.Client.Create(ctx, hook); err != nil {
		server.Close()
		return nil, fmt.Errorf("create webhook: %w", err)
	}
	return func(ctx context.Context) error {
		if err := client.IgnoreNotFound(t.Client.Delete(ctx, hook)); err != nil {
			return fmt.Errorf("delete webhook: %w", err)
		}
		server.Close()
		return nil
	}, nil
}

func certificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// admitLate admits everything, later.
func admitLate(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no admission review", http.StatusBadRequest)
		return
	}
	if err := pause(r.Context(), webhookDelay); err != nil {
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}
