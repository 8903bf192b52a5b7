package linstorsim

import (
	"fmt"
	"net/http"
)

// errorReport is one that a satellite has written.
type errorReport struct {
	Node      string `json:"node_name"`
	FileName  string `json:"filename"`
	Module    string `json:"module"`
	Exception string `json:"exception"`
	Message   string `json:"exception_message"`
}

// report has a satellite write an error report. The lock must be held.
func (n *node) report(exception, message string) {
	n.written = append(n.written, errorReport{
		Node: n.name, FileName: fmt.Sprintf("ErrorReport-%08X-%s-%06d.log", n.process, n.name, len(n.written)), Module: "SATELLITE",
		Exception: exception, Message: message,
	})
}

// serveErrorReports answers with the error reports of a satellite; with none where LINSTOR has no connection to it.
func (s *Server) serveErrorReports(w http.ResponseWriter, r *http.Request) {
	list := []errorReport{}
	s.onNode(r.URL.Query().Get("node"), func(n *node) {
		if n.connected && !n.blind && n.running && n.reachable {
			list = append(list, n.written...)
		}
	})
	answer(w, list)
}
