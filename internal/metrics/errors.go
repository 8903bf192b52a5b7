package metrics

import (
	"context"
	"errors"
	"net"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Step is a step of a fail-over that asks the API server for something.
type Step string

// The steps, in their order.
const (
	// StepLook reads anew what a fail-over rests on.
	StepLook Step = "look"
	// StepTaint keeps new pods away from the node.
	StepTaint Step = "taint"
	// StepMark notes on the attachment that its fail-over has begun.
	StepMark Step = "mark"
	// StepDelete deletes a pod.
	StepDelete Step = "delete"
	// StepRelease takes volumes out of those that the node calls in use.
	StepRelease Step = "release"
	// StepDetach deletes the attachment.
	StepDetach Step = "detach"
	// StepUntaint lets pods return to the node.
	StepUntaint Step = "untaint"
)

var steps = []Step{StepLook, StepTaint, StepMark, StepDelete, StepRelease, StepDetach, StepUntaint}

const (
	codeTimeout = "timeout"
	codeError   = "error"
)

// usualCodes are those with which a step is likely to fail: forbidden, a conflict, rejected, too many requests, and a failing API server.
var usualCodes = []string{"403", "409", "422", "429", "500", "503", codeTimeout, codeError}

// Failed counts a request that failed.
func (m *Metrics) Failed(step Step, err error) {
	m.errors.WithLabelValues(string(step), code(err)).Inc()
}

// code is the HTTP status by which the API server has rejected a request or, where it has not answered, whether the time was up.
func code(err error) string {
	var status apierrors.APIStatus
	var network net.Error
	switch {
	case errors.As(err, &status) && status.Status().Code != 0:
		return strconv.Itoa(int(status.Status().Code))
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return codeTimeout
	}
	return codeError
}
