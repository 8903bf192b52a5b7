package client

import (
	"context"
	"errors"
	"time"

	golinstor "github.com/LINBIT/golinstor"
)

// notConnected is LINSTOR's warning that it has no connection to a satellite, as JSON has it: with a sign.
const notConnected = golinstor.WarnNotConnected - 1<<64

// Pool is a storage pool of /v1/view/storage-pools. LINSTOR asks the node's satellite how much room there is, and says so where it has
// no connection to it.
type Pool struct {
	NodeName     string   `json:"node_name"`
	FreeCapacity *int64   `json:"free_capacity"`
	Reports      []Report `json:"reports"`
}

// Report is one of the return codes of a pool.
type Report struct {
	RetCode *int64 `json:"ret_code"`
}

// IsConnected returns whether LINSTOR has a connection to the pool's satellite; nil where it does not say.
func (p Pool) IsConnected() *bool {
	for _, report := range p.Reports {
		if report.RetCode != nil && *report.RetCode == notConnected {
			return new(false)
		}
	}
	if len(p.Reports) > 0 || p.FreeCapacity == nil {
		return nil
	}
	return new(true)
}

// StoragePools reads all storage pools. LINSTOR asks every satellite for it that it has a connection to, and waits for those that hang.
func (c *Client) StoragePools(ctx context.Context) ([]Pool, error) {
	return list(ctx, c, kindPools, c.requestTimeout, "/v1/view/storage-pools", func(p Pool) string { return p.NodeName })
}

// AnswersFor reports whether LINSTOR answers in time for what it has to ask the satellite of a node. One that is given up meanwhile is
// none that keeps anybody waiting.
func (c *Client) AnswersFor(ctx context.Context, node string, patience time.Duration) (bool, error) {
	_, err := list(ctx, c, kindSatellite, patience, filtered("/v1/view/resources", "nodes", []string{node})+"&limit=1", Resource.name)
	if _, late := errors.AsType[NoAnswerError](err); late {
		return false, nil
	}
	if status, ok := errors.AsType[*StatusError](err); ok && status.Code >= 500 {
		return true, nil
	}
	return err == nil, err
}

// ErrorReport is one of /v1/error-reports.
type ErrorReport struct {
	// FileName is "ErrorReport-PROCESS-NODE-NUMBER.log"; PROCESS changes with each start of the satellite.
	FileName         string `json:"filename"`
	Exception        string `json:"exception"`
	ExceptionMessage string `json:"exception_message"`
}

// ErrorReports reads the error reports of a node's satellite, the newest last. LINSTOR asks the satellite for them. Where it has no connection to it, it
// answers that there are none.
func (c *Client) ErrorReports(ctx context.Context, node string) ([]ErrorReport, error) {
	path := filtered("/v1/error-reports", "node", []string{node})
	return list(ctx, c, kindReports, c.requestTimeout, path, func(r ErrorReport) string { return r.FileName })
}
