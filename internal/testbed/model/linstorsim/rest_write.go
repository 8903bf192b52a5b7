package linstorsim

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"
)

// hungCommand is how long LINSTOR waits for a satellite whose commands hang.
const hungCommand = 45 * time.Second

// Return codes of LINSTOR's answers. Clients look at the HTTP status and at the sign: errors are negative.
const (
	retModified    = 20447233
	retFailedNode  = -4611686018390162458
	retFailedQuery = -4611686018427386906
	retInvalidProp = -4611686018427387904 | 976
)

// changeProps is the body of a call that changes properties.
type changeProps struct {
	Override map[string]string `json:"override_props"`
	Delete   []string          `json:"delete_props"`
}

// props are the properties to set, with an empty value for those to remove.
func (c changeProps) props() map[string]string {
	props := map[string]string{}
	for _, key := range c.Delete {
		props[key] = ""
	}
	maps.Copy(props, c.Override)
	return props
}

// readProps reads the body of a call; it answers itself if there is none that it understands.
func readProps(w http.ResponseWriter, r *http.Request) (map[string]string, bool) {
	var body changeProps
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		send(w, http.StatusBadRequest, encode([]apiCallRC{{RetCode: retInvalidProp, Message: "The request is not understood."}}))
		return nil, false
	}
	return body.props(), true
}

// changeDefinition answers PUT /v1/resource-definitions/{definition}: what a satellite could not do is one error entry,
// and the property stays.
func (s *Server) changeDefinition(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("definition")
	s.mu.Lock()
	known := s.definitions[fold(name)] != nil
	s.mu.Unlock()
	if !known {
		notFound(w, "resource definition", name)
		return
	}
	props, ok := readProps(w, r)
	if !ok {
		return
	}
	if !s.differs(name, props) {
		// What changes nothing reaches no satellite.
		answerOutcome(w, r, outcome{})
		return
	}
	answerOutcome(w, r, s.setDefinition(name, props))
}

// differs tells whether a definition has other properties than those.
func (s *Server) differs(resourceName string, props map[string]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.definitions[fold(resourceName)]
	for key, value := range props {
		// A quorum is written down as a person's even where it is the same.
		if d != nil && (d.props[key] != value || key == PropQuorum) {
			return true
		}
	}
	return false
}

// changeGroup answers PUT /v1/resource-groups/{group}.
func (s *Server) changeGroup(w http.ResponseWriter, r *http.Request) {
	if props, ok := readProps(w, r); ok {
		answerOutcome(w, r, s.setGroup(r.PathValue("group"), props))
	}
}

// changeController answers POST /v1/controller/properties.
func (s *Server) changeController(w http.ResponseWriter, r *http.Request) {
	props, ok := readProps(w, r)
	if !ok {
		return
	}
	for key, value := range props {
		s.SetControllerProperty(key, value)
	}
	send(w, http.StatusCreated, encode([]apiCallRC{{RetCode: retModified}}))
}

// changeOther answers the calls that change the properties of a node or a resource: LINSTOR takes no quorum there.
func (s *Server) changeOther(change func(r *http.Request, key, value string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		props, ok := readProps(w, r)
		if !ok {
			return
		}
		for key, value := range props {
			if err := change(r, key, value); err != nil {
				send(w, http.StatusBadRequest, encode([]apiCallRC{{RetCode: retInvalidProp, Message: err.Error()}}))
				return
			}
		}
		send(w, http.StatusOK, encode([]apiCallRC{{RetCode: retModified}}))
	}
}

// loseNode answers DELETE /v1/nodes/{node}/lost.
func (s *Server) loseNode(w http.ResponseWriter, r *http.Request) {
	if err := s.LoseNode(r.PathValue("node")); err != nil {
		send(w, http.StatusInternalServerError, encode([]apiCallRC{{RetCode: retFailedNode, Message: err.Error()}}))
		return
	}
	send(w, http.StatusOK, encode([]apiCallRC{{RetCode: retModified}}))
}

// answerOutcome answers a change after the satellites have done what they could.
func answerOutcome(w http.ResponseWriter, r *http.Request, result outcome) {
	list := []apiCallRC{{RetCode: retModified}}
	if result.hung {
		timer := time.NewTimer(hungCommand)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	status := http.StatusOK
	if result.hung || result.failed {
		status = http.StatusInternalServerError
		list = slices.Concat(list, []apiCallRC{{RetCode: retFailedNode, Message: "Failed to adjust the DRBD resource."}})
	}
	send(w, status, encode(list))
}
