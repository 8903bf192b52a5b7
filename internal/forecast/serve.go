package forecast

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-logr/logr"
)

const (
	headersWithin = 5 * time.Second
	answersWithin = time.Minute
	// maxAnswer bounds what a client reads: 100,000 volumes take 60 MB.
	maxAnswer = 256 << 20
)

// Answer answers a question.
type Answer func(context.Context, Question) Report

// Handler serves the answers as JSON, one at a time.
func Handler(answer Answer) http.Handler {
	turn := make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-r.Context().Done():
			return
		}
		query := r.URL.Query()
		report := answer(r.Context(), Question{Namespace: query.Get("namespace"), Node: query.Get("node")})
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(report) // a client that has gone need not be told
	})
	return mux
}

// Serve serves the answers on the loopback interface, and on no other, until ctx ends. A port that is taken is logged: it is no reason not to fail over.
func Serve(ctx context.Context, port int, answer Answer, log logr.Logger) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address(port))
	if err != nil {
		log.Error(err, "Cannot serve forecasts, so check cannot ask this replica")
		return
	}
	server := &http.Server{Handler: Handler(answer), ReadHeaderTimeout: headersWithin, WriteTimeout: answersWithin}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	_ = server.Serve(listener) // ends with ctx
}

// Ask asks the replica in this pod.
func Ask(ctx context.Context, port int, q Question) (Report, error) {
	query := url.Values{"namespace": {q.Namespace}, "node": {q.Node}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address(port)+Path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return Report{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return Report{}, fmt.Errorf("%s answers %s: another program listens there", request.URL.Host, response.Status)
	}
	return Decode(http.MaxBytesReader(nil, response.Body, maxAnswer))
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// portVariable is the environment variable that names another port. Who is run in the pod finds it there, too.
const portVariable = "FORECAST_PORT"

// defaultPort is the port by default.
const defaultPort = 8082

// Port returns the port on which a replica serves its forecasts, as the environment says.
func Port(lookup func(string) (string, bool)) (int, error) {
	value, ok := lookup(portVariable)
	if !ok || value == "" {
		return defaultPort, nil
	}
	port, err := strconv.ParseUint(value, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("invalid environment variable %s=%q: must be a port, from 1 to 65535", portVariable, value)
	}
	return int(port), nil
}
