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
	third, half                    = 8, 12
	low, ordinary, higher, highest = 4, 8, 9, 10
)

// query asks for a value over time, and shows it under a legend.
func query(expr, legend string) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(prometheusSource()).Expr(expr).LegendFormat(legend)
}

// figure is one value, of now, or several; each query is followed by its legend.
func figure(width uint32, title, description string, queries ...string) *stat.PanelBuilder {
	panel := stat.NewPanelBuilder().Title(title).Description(description).Datasource(prometheusSource()).Span(width).Height(low).
		GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeValue).Thresholds(limit(dashboard.Threshold{Color: "text"}))
	for i := 0; i+1 < len(queries); i += 2 {
		panel.WithTarget(query(queries[i], queries[i+1]).Instant().RefId(string(rune('A' + i/2))))
	}
	return panel
}

// limit colours a figure by its value. Without one Grafana shows all from 80 on in red.
func limit(steps ...dashboard.Threshold) cog.Builder[dashboard.ThresholdsConfig] {
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

// good colours a figure that should be 0: with anything else it is of the given colour.
func good(otherwise string) cog.Builder[dashboard.ThresholdsConfig] { return below(1, otherwise) }

// below colours a figure that should be below a value: from there on it is of the given colour.
func below(value float64, otherwise string) cog.Builder[dashboard.ThresholdsConfig] {
	return limit(dashboard.Threshold{Color: "green"}, dashboard.Threshold{Value: new(value), Color: otherwise})
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
		Unit(unit).Min(0).FillOpacity(10).NoValue("none").Legend(legend(common.LegendPlacementRight)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for i := 0; i+1 < len(queries); i += 2 {
		panel.WithTarget(query(queries[i], queries[i+1]).Range().RefId(string(rune('A' + i/2))))
	}
	return panel
}

// count is a line of whole numbers. Its axis reaches 1 where all of them are 0: Grafana would let it reach 100.
func count(title, description string, queries ...string) *timeseries.PanelBuilder {
	return line(title, description, "short", queries...).Decimals(0).AxisSoftMax(1)
}

// legend tells what the lines are, with the largest first.
func legend(where common.LegendPlacement) *common.VizLegendOptionsBuilder {
	return common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeTable).Placement(where).ShowLegend(true).
		Calcs([]string{"lastNotNull", "max"}).SortBy("Max").SortDesc(true)
}

// beneath puts the legend of a panel under it that is narrow, or whose lines have the names of pods: beside the lines it would leave them
// no room.
func beneath(panel *timeseries.PanelBuilder) *timeseries.PanelBuilder {
	return panel.Height(higher).Legend(legend(common.LegendPlacementBottom))
}

// list is a table of what there is now, and of how many: the value's heading says of what.
func list(title, description, heading, expr string, labels ...string) *table.PanelBuilder {
	order := map[string]any{"Value": len(labels)}
	for i, label := range labels {
		order[label] = i
	}
	return table.NewPanelBuilder().Title(title).Description(description).Datasource(prometheusSource()).Span(half).Height(ordinary).
		Decimals(0).NoValue("none").
		WithTarget(query(expr, "").Instant().Format(prometheus.PromQueryFormatTable).RefId("A")).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"})). // Grafana wants one named
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]any{"Time": true}, "indexByName": order, "renameByName": map[string]any{"Value": heading},
		}})
}
