package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

const (
	pages = "https://github.com/piraeusdatastore/piraeus-ha-controller/blob/main/docs/"
	// of restricts a query to the installation that is looked at.
	of = `job="$job",namespace="$namespace"`
	// leads keeps the replica that leads.
	leads = ` and on (namespace, pod) leader_election_master_status{` + of + `} == 1`
)

// prometheusSource is the data source that is chosen above the dashboard.
func prometheusSource() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

// controllerBoard is the whole dashboard: what is so now, what was moved and what was not, LINSTOR, and the processes.
func controllerBoard() *dashboard.DashboardBuilder {
	board := dashboard.NewDashboardBuilder("Piraeus High Availability Controller").
		Uid("piraeus-ha-controller").
		Description("What the controller that moves workloads off lost nodes sees, does, and does not do.").
		Tags([]string{"piraeus", "linstor", "drbd"}).
		Refresh("30s").
		Time("now-6h", "now").
		Timezone("browser").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("Runbooks").Type(dashboard.DashboardLinkTypeLink).Url(pages + "runbooks.md").TargetBlank(true)).
		Variables(variables()).
		Annotations(annotations())
	for _, row := range []struct {
		title  string
		panels []cog.Builder[dashboard.Panel]
	}{
		{"Now", now()}, {"Fail-overs", failovers()}, {"What needs care", care()}, {"LINSTOR", linstor()}, {"Processes", processes()},
	} {
		board.WithRow(dashboard.NewRowBuilder(row.title))
		for _, panel := range row.panels {
			board.WithPanel(panel)
		}
	}
	return board
}

func variables() []cog.Builder[dashboard.VariableModel] {
	label := func(name, title, query string) *dashboard.QueryVariableBuilder {
		return dashboard.NewQueryVariableBuilder(name).Label(title).Datasource(prometheusSource()).
			Query(dashboard.StringOrMap{String: new(query)}).Refresh(dashboard.VariableRefreshOnDashboardLoad)
	}
	return []cog.Builder[dashboard.VariableModel]{
		dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"),
		label("namespace", "Namespace", "label_values(piraeus_ha_controller_build_info, namespace)"),
		label("job", "Job", `label_values(piraeus_ha_controller_build_info{namespace="$namespace"}, job)`),
	}
}

func annotations() []cog.Builder[dashboard.AnnotationQuery] {
	mark := func(name, color, query string) cog.Builder[dashboard.AnnotationQuery] {
		return dashboard.NewAnnotationQueryBuilder().Name(name).Datasource(prometheusSource()).Enable(true).IconColor(color).
			Expr(query).Step("30s").TitleFormat(name)
	}
	return []cog.Builder[dashboard.AnnotationQuery]{
		mark("Fail-over", "orange", `sum by (reason) (increase(piraeus_ha_controller_failovers_total{`+of+`}[1m])) > 0`),
		mark("Leader changes", "blue", `sum by (pod) (changes(leader_election_master_status{`+of+`}[1m])) > 0`),
		mark("Guard", "red", `max(piraeus_ha_controller_guard_tripped{`+of+`}) > 0`),
	}
}
