package linstorsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Parts of LINSTOR's return codes, which are one number: how bad it is, what was done to what, and a code.
const (
	maskError = -4611686018427387904
	maskWarn  = -9223372036854775808
	maskCodes = 0x7fff

	opCreate = 0x1000000
	opModify = 0x2000000
	opDelete = 0x3000000

	ofNode     = 0x3c0000
	ofResource = 0x340000

	codeCreated, codeDeleted, codeModified = 1, 2, 3
)

// Codes of what LINSTOR refuses or warns of.
const (
	codeInvalidPlaceCount = 219
	codeInvalidConf       = 230
	codeNodeNotFound      = 300
	codeDefNotFound       = 301
	codeEvacuating        = 975
	codeNotEnoughNodes    = 996
	codeInUse             = 997
	codeNotConnected      = 1002
	codeAlreadyDeployed   = 1006
	codeNotEvacuating     = 1020
)

// answers is what LINSTOR says to one call that changes something, entry by entry.
type answers []apiCallRC

// say adds an entry about a resource, or about a definition where the node is empty.
func (a *answers) say(code int64, resourceName, nodeName, message string) *apiCallRC {
	entry := apiCallRC{RetCode: code, Message: message, ObjRefs: map[string]string{"RscDfn": resourceName}}
	if nodeName != "" {
		entry.ObjRefs["Node"] = nodeName
	}
	*a = append(*a, entry)
	return &(*a)[len(*a)-1]
}

// failed tells whether one of the entries is an error.
func (a answers) failed() bool {
	return slices.ContainsFunc(a, func(entry apiCallRC) bool { return entry.isError() })
}

func (entry apiCallRC) isError() bool { return entry.RetCode < 0 && entry.RetCode >= maskError }

// status is the HTTP status of an answer: that of its first error, whatever the other entries say.
func (a answers) status(success int) int {
	const notFound, denied, last = 300, 400, 499
	for _, entry := range a {
		if !entry.isError() {
			continue
		}
		switch code := entry.RetCode & maskCodes; {
		case code >= notFound && code < denied:
			return http.StatusNotFound
		case code >= denied && code <= last:
			return http.StatusForbidden
		}
		return http.StatusInternalServerError
	}
	return success
}

// sendTo answers a call.
func (a answers) sendTo(w http.ResponseWriter, success int) {
	if a == nil {
		a = answers{} // LINSTOR's list is never null
	}
	send(w, a.status(success), encode(a))
}

// sayNodeNotFound is LINSTOR's answer about a node that it does not know.
func sayNodeNotFound(name string) answers {
	return answers{{
		RetCode: maskError | opModify | ofNode | codeNodeNotFound, Message: fmt.Sprintf("Node '%s' not found.", name),
		ObjRefs: map[string]string{"Node": name},
	}}
}

// errorText is what the errors of an answer say.
func (a answers) errorText() string {
	var all []string
	for _, entry := range a {
		if entry.isError() {
			all = append(all, entry.Message)
		}
	}
	return strings.Join(all, " ")
}
