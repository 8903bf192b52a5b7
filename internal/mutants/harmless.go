package main

// harmless are the mutants that no test needs to notice, and why. One that a test does notice must be taken off the list.
var harmless = map[string]string{
	"internal/failover/decide.go: calm: no case Unknown":                                   "what is never judged is read again without need",
	"internal/failover/fresh.go: fresh: without !confirmed.IsZero()":                       "the zero time is too long ago in any case",
	"internal/failover/guard.go: Guard: without s.LastOnline.IsZero()":                     "the zero time is too long ago in any case",
	"internal/failover/recover.go: Recover: never in.Answers":                              "only the words differ",
	"internal/failover/verdict.go: readOnly: len(s.Pods) > 0 with >=":                      "without a pod a Secondary is unused in any case",
	"internal/failover/verdict.go: ruleForcedIOErrors: latest without s.workloadSince()":   "the state began after A was in use, and that after the workload came",
	"internal/failover/verdict.go: ruleForcedIOErrors: without replica.LastInUse.IsZero()": "the zero time is before the workload came in any case",
	"internal/failover/verdict.go: ruleSecondary: never s.cond.state != Secondary":         "the last rule: every other state has its answer by then",
	"internal/failover/witness.go: couldHoldQuorum: 2*v.diskfulHeld > v.diskful with >=":   "exactly half is answered before",

	"controllers/failover_actions.go: act: without in.Halt.Guard != \"\"":                             "the same is asked again after the reading that it spares",
	"controllers/failover_actions.go: act: without in.Halt.Paused != \"\"":                            "the same is asked again after the reading that it spares",
	"controllers/gather.go: candidates: without in.Attachment != nil":                                 "a node without pods is a candidate by its attachment only",
	"controllers/confirm.go: confirmAttachment: never va.Spec.NodeName != node":                       "what is read too much is sorted out afterwards",
	"controllers/gather.go: podsOf: never claim == \"\"":                                              "no pod has a claim without a name",
	"controllers/halt.go: guard: without node.Online.Known":                                           "what is not known has the value false",
	"controllers/failover_actions.go: isOld: r.age(in) > failover.MaxAge with >=":                     "what is exactly so old is read once more",
	"controllers/confirm.go: confirmEmptied: g.clock.Now().Sub(in.Asked) > recent with >=":            "what is exactly so old is read once more",
	"controllers/failover_controller.go: add: d < time.Duration(*s) with <=":                          "what is equal may be put in the other's place",
	"controllers/failover_actions.go: detach: r.clock.Now().Sub(in.Now) > glance with >=":             "what is exactly so long ago is looked at once more",
	"controllers/keepaway.go: effect: without state == failover.Unreachable":                          "all other states allow the same effect as an unknown one",
	"controllers/keepaway.go: seen: without ok":                                                       "a taint that was not seen has no effect, which is none of those asked for",
	"controllers/keepaway.go: taint: without ours":                                                    "a mark that is new has a cause, and so is not equal to none",
	"controllers/keepaway_controller.go: Reconcile: mark.Expires.Sub(now) > keepAwayExpiry/2 with >=": "the taint is renewed an instant earlier",
	"controllers/kubelets.go: ObserveLease: without !ok":                                              "every renewal differs from none",
	"controllers/volumes_in_use.go: volumesInUse of another node of that name is replaced":            "another node has other volumes in use, which is asked for, too",
}
