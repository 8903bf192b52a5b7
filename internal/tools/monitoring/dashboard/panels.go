package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Widths and heights in the grid of 24 columns.
const (
	narrow, half  = 3, 12
	low, ordinary = 4, 8
)

// query asks for a value over time, and shows it under a legend.
func query(expr, legend string) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(prometheusSource()).Expr(expr).LegendFormat(legend)
}

// figure is one value, of now.
func figure(title, description string, queries ...string) *stat.PanelBuilder {
	panel := stat.NewPanelBuilder().Title(title).Description(description).Datasource(prometheusSource()).Span(narrow).Height(low).
		GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeValue)
	for i, expr := range queries {
		panel.WithTarget(query(expr, "__auto").Instant().RefId(string(rune('A' + i))))
	}
	return panel
}

// good colours a figure that should be 0: with anything else it is of the given colour.
func good(otherwise string) cog.Builder[dashboard.ThresholdsConfig] {
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps([]dashboard.Threshold{
		{Color: "green"}, {Value: new(1.0), Color: otherwise},
	})
}

// words shows 0 and 1 as words.
func words(off, on, color string) []dashboard.ValueMapping {
	shown := map[string]dashboard.ValueMappingResult{
		"0": {Text: new(off), Color: new("green")}, "1": {Text: new(on), Color: new(color)},
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: shown}}}
}

// line is values over time; each query is followed by its legend.
func line(title, description, unit string, queries ...string) *timeseries.PanelBuilder {
	panel := timeseries.NewPanelBuilder().Title(title).Description(description).Datasource(prometheusSource()).Span(half).Height(ordinary).
		Unit(unit).Min(0).FillOpacity(10).NoValue("none").
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeTable).Placement(common.LegendPlacementRight).
			ShowLegend(true).Calcs([]string{"lastNotNull", "max"}))
	for i := 0; i+1 < len(queries); i += 2 {
		panel.WithTarget(query(queries[i], queries[i+1]).Range().RefId(string(rune('A' + i/2))))
	}
	return panel
}

// list is a table of the values of now.
func list(title, description, expr string) *table.PanelBuilder {
	return table.NewPanelBuilder().Title(title).Description(description).Datasource(prometheusSource()).Span(half).Height(ordinary).
		WithTarget(query(expr, "").Instant().Format(prometheus.PromQueryFormatTable).RefId("A")).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"})). // Grafana wants one named
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{"excludeByName": map[string]any{"Time": true}}})
}
