package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// own returns a selector of a metric of the controller, with further labels if there are any.
func own(metric, labels string) string {
	if labels != "" {
		labels = "," + labels
	}
	return "piraeus_ha_controller_" + metric + "{" + of + labels + "}"
}

func now() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		figure(9, "Leader", "The replica that acts.", `sum by (pod) (leader_election_master_status{`+of+`}) == 1`, "{{pod}}").
			TextMode(common.BigValueTextModeName),
		figure(4, "LINSTOR answered", "Seconds since LINSTOR last answered the leader.",
			`time() - `+own("linstor_last_success_timestamp_seconds", "")+leads, "ago").Unit("s").Decimals(0).Thresholds(below(60, "red")),
		figure(3, "Guard", "Closed while so many nodes seem lost that nothing is moved.", `max(`+own("guard_tripped", "")+`)`, "guard").
			Mappings(words("open", "closed", "red")),
		figure(4, "Pause, dry run", "Whether fail-over is paused, and whether it is only said what would be done.",
			`max(`+own("paused", "")+`)`, "paused", `max(`+own("dry_run", "")+`)`, "dry run").Mappings(words("no", "yes", "orange")),
		figure(4, "Versions", "What runs, and in how many replicas.", `count by (version) (`+own("build_info", "")+`)`, "{{version}}").
			TextMode(common.BigValueTextModeValueAndName),
		figure(6, "Protected pods", "Pods that would be moved if their node were lost now, and all that are selected.",
			`sum(`+own("pods", `protection="Protected"`)+`)`, "protected", `sum(`+own("pods", "")+`)`, "selected"),
		figure(6, "Unprotected pods", "Selected pods that would not be moved.", `sum(`+own("unprotected_pods", "")+`)`, "unprotected").
			Thresholds(good("orange")),
		figure(6, "Volumes lost now", "Volumes that are being moved.", `sum(`+own("volumes", `verdict="Lost"`)+`)`, "lost").
			Thresholds(good("orange")),
		figure(6, "Volumes blocked now", "Volumes that are lost, or seem so, and are not moved.", `sum(`+own("blocked_volumes", "")+`)`,
			"blocked").Thresholds(good("red")),
	}
}

func failovers() []cog.Builder[dashboard.Panel] {
	quantile := func(q string) string {
		return `histogram_quantile(` + q + `, sum by (stage, le) (increase(` + own("failover_duration_seconds_bucket", "") + `[$__range])))`
	}
	return []cog.Builder[dashboard.Panel]{
		count("Volumes by verdict", "Volumes on the nodes that use them. What only seems lost is not lost by its verdict, but may be blocked.",
			`sum by (verdict) (`+own("volumes", "")+`)`, "{{verdict}}"),
		count("Fail-overs by reason", "Volumes that were taken off a node.",
			`sum by (reason) (increase(`+own("failovers_total", "")+`[$__rate_interval]))`, "{{reason}}"),
		line("Duration by stage", "Of the fail-overs in the range that is shown, as near as the buckets of the histogram tell.", "s",
			quantile("0.5"), "{{stage}} p50", quantile("0.99"), "{{stage}} p99").Height(highest),
		count("Blocked by reason", "Volumes that are lost, or seem so, and are not moved.",
			`sum by (reason) (`+own("blocked_volumes", "")+`) > 0`, "{{reason}}").Height(highest),
	}
}

func care() []cog.Builder[dashboard.Panel] {
	explained := []dashboard.DynamicConfigValue{{Id: "links", Value: []map[string]any{
		{"title": "What it means, and what to do", "url": pages + "reasons.md", "targetBlank": true},
	}}}
	return []cog.Builder[dashboard.Panel]{
		list("Unprotected pods by reason", "Pods that would not be moved if their node were lost now.", "pods",
			`topk(10, sum by (reason) (`+own("unprotected_pods", "")+`) > 0)`, "reason").OverrideByName("reason", explained),
		list("Errors by step and code", "Requests of fail-overs that failed in the range that is shown.", "requests",
			`topk(10, sum by (step, code) (increase(`+own("failover_errors_total", "")+`[$__range])) > 0)`, "step", "code"),
	}
}

func linstor() []cog.Builder[dashboard.Panel] {
	waits := func(q string) string {
		return `histogram_quantile(` + q + `, sum by (le) (increase(` + own("event_to_decision_seconds_bucket", "") + `[$__range])))`
	}
	return []cog.Builder[dashboard.Panel]{
		beneath(count("Event stream", "1 where a replica follows LINSTOR's events.", own("linstor_stream_connected", ""), "{{pod}}").Max(1)),
		beneath(line("Resync", "Mean time to read everything known of LINSTOR, since the replica started.", "s",
			own("linstor_resync_duration_seconds_sum", "")+` / `+own("linstor_resync_duration_seconds_count", ""), "{{pod}}")),
		beneath(count("Reconnects by reason", "Event streams that ended.",
			`sum by (reason) (increase(`+own("linstor_stream_reconnects_total", "")+`[$__rate_interval]))`, "{{reason}}").Span(third)),
		beneath(line("Requests by code", "Requests to LINSTOR, of all replicas.", "reqps",
			`sum by (code) (rate(`+own("linstor_requests_total", "")+`[$__rate_interval]))`, "{{code}}").Span(third)),
		beneath(line("Event to decision",
			"Time from an event of LINSTOR to the leader's first decision that knew of it, in the range that is shown.", "s",
			waits("0.5"), "p50", waits("0.99"), "p99").Span(third)),
	}
}

func processes() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		beneath(line("Memory", "Resident memory of the replicas.", "bytes", `process_resident_memory_bytes{`+of+`}`, "{{pod}}")),
		beneath(line("CPU", "What the replicas use, of one processor.", "percentunit",
			`rate(process_cpu_seconds_total{`+of+`}[$__rate_interval])`, "{{pod}}")),
		line("Rejected by the API server", "Requests to which Kubernetes answered that there are too many.", "reqps",
			`sum(rate(rest_client_requests_total{`+of+`,code="429"}[$__rate_interval])) or vector(0)`, "429").AxisSoftMax(1),
		count("Leader changes", "How often leadership has moved.",
			`sum(changes(leader_election_master_status{`+of+`}[$__rate_interval]))`, "changes"),
	}
}
