package sim

// checkWriters: where quorum fences, two nodes never write and the data never diverges. Where it does not, or somebody has changed it,
// they never do because of the controllers.
func (w *world) checkWriters() {
	seen := make(map[string]bool)
	for _, v := range w.history.World.Volumes {
		resource := v.Resource()
		if seen[resource] || w.split[resource] || v.Shared || w.migrated[v.Name] {
			continue
		}
		seen[resource] = true
		fenced := w.fenced(v) && !w.changed[resource]
		if writers := w.writers(resource); len(writers) > 1 {
			w.twoWrite(resource, writers, fenced)
		}
		if fenced && w.DRBD.Diverged(resource) {
			w.split[resource] = true
			if w.damaged[resource] {
				w.excuse(ExcuseDamaged, "resource %s has diverged", resource)
				continue
			}
			w.violated(ruleTwoPrimaries, "resource %s has diverged", resource)
		}
	}
}

// twoWrite tells why two nodes can write a resource.
func (w *world) twoWrite(resource string, writers map[string]bool, fenced bool) {
	w.split[resource] = true
	byUs, byPerson, later, hidden, vouched := false, false, true, true, true
	w.mu.Lock()
	for node := range writers {
		taken, is := w.taken[place{resource, node}]
		byUs = byUs || is
		later = later && (!is || w.changedAt[resource].After(taken.at))
		hidden = hidden && (!is || taken.unseen)
		vouched = vouched && (!is || taken.vouched)
		byPerson = byPerson || w.forced[place{resource, node}]
	}
	w.mu.Unlock()
	switch {
	case byUs && later:
		w.excuse(ExcuseUnfenced, "resource %s: %v", resource, writers)
	case byUs && vouched && !fenced:
		w.excuse(ExcuseVouched, "resource %s: %v", resource, writers)
	case byUs && hidden:
		w.excuse(ExcuseUnseen, "resource %s: %v", resource, writers)
	case byUs:
		w.violated(ruleTwoPrimaries, "resource %s: %v, of which the controllers took it from one", resource, writers)
	case fenced:
		w.violated(ruleTwoPrimaries, "resource %s: %v", resource, writers)
	case byPerson:
		w.excuse(ExcusePerson, "resource %s: %v", resource, writers)
	default:
		w.count("two nodes can write, by no doing of the controllers")
	}
}
