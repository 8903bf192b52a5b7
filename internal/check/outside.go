package check

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
)

// wayToLinstor says what to do where LINSTOR does not answer. Outside of the cluster the name that the Deployment uses leads nowhere.
func wayToLinstor(f Facts) string {
	namespace, service, port, secure := serviceOf(f.Controller)
	if !f.Outside || service == "" {
		return "name the LINSTOR controllers by the environment variable LS_CONTROLLERS and check LS_ROOT_CA_FILE and the other " +
			"LS_* variables; without LINSTOR nothing is ever moved"
	}
	forward := fmt.Sprintf("the Deployment uses %s; from here: kubectl -n %s port-forward service/%s %s:%s, and meanwhile ",
		f.Controller.Linstor, namespace, service, port, port)
	if !secure {
		return forward + "LS_CONTROLLERS=http://localhost:" + port
	}
	return forward + fmt.Sprintf("LS_CONTROLLERS=https://localhost:%s with LS_ROOT_CA_FILE, LS_USER_CERTIFICATE_FILE and LS_USER_KEY_FILE from its Secret; "+
		"where the certificate does not name localhost, let /etc/hosts lead the Service's name to 127.0.0.1 and use that", port)
}

// Ports of LINSTOR's REST API.
const (
	plainPort  = "3370"
	securePort = "3371"
)

// serviceOf returns the Service by which the Deployment reaches LINSTOR; its name is empty where it is not one.
func serviceOf(c Controller) (namespace, service, port string, secure bool) {
	first, _, _ := strings.Cut(c.Linstor, ",")
	if !strings.Contains(first, "://") {
		first = "http://" + first
	}
	u, err := url.Parse(first)
	if err != nil {
		return "", "", "", false
	}
	secure = u.Scheme == "https" || u.Scheme == "linstor+ssl"
	port = plainPort
	if secure {
		port = securePort
	}
	labels := strings.Split(u.Hostname(), ".")
	own, _, _ := strings.Cut(c.Name, "/")
	namespace = own
	if len(labels) > 1 {
		namespace = labels[1]
	}
	if labels[0] == "" || len(labels) > 2 && labels[2] != "svc" {
		return "", "", "", secure // a name outside of the cluster, or an address
	}
	return namespace, labels[0], cmp.Or(u.Port(), port), secure
}
