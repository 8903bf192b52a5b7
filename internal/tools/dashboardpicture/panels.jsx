// Draws a panel of the dashboard with Grafana's components.
import {
  FieldColorModeId, FieldConfigOptionsRegistry, VizOrientation, applyFieldOverrides, cacheFieldDisplayNames, createTheme, dateTime,
  getFieldDisplayValues, standardTransformers, standardTransformersRegistry, transformDataFrame,
} from '@grafana/data';
import { BigValue, PanelChrome, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { use } from 'react';
import { shown } from './answers';

export const theme = createTheme();
const timeZone = 'utc';
const [from, to] = [dateTime(shown.from), dateTime(shown.to)];
const timeRange = { from, to, raw: { from, to } };
const replaceVariables = (text) => text;

const transformers = new Map(Object.values(standardTransformers).map((transformer) => [transformer.id, transformer])); // some have two names
standardTransformersRegistry.setInit(() => [...transformers].map(([id, transformer]) => ({
  id, name: transformer.name, transformation: () => transformer,
})));

// What Grafana itself takes where a panel says nothing.
const thresholds = { mode: 'absolute', steps: [{ value: null, color: 'green' }, { value: 80, color: 'red' }] };
const unsaid = { stat: { thresholds }, timeseries: { color: { mode: FieldColorModeId.PaletteClassic } }, table: { thresholds } };

// configured gives fields what the panel says of them.
function configured(panel, frames) {
  const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
  const all = structuredClone({ ...unsaid[panel.type], ...defaults });
  const properties = [
    ...Object.keys(all), ...overrides.flatMap((override) => override.properties.map(({ id }) => id)),
  ].filter((id) => id !== 'custom').map((id) => ({ id, path: id }));
  const custom = Object.keys(all.custom ?? {}).map((path) => ({ id: `custom.${path}`, path, isCustom: true }));
  const fieldConfigRegistry = new FieldConfigOptionsRegistry(() => [...properties, ...custom].map((property) => ({
    ...property, name: property.id, process: (value) => value, shouldApply: () => true,
  })));
  const fields = applyFieldOverrides({
    data: frames, fieldConfig: { defaults: all, overrides }, fieldConfigRegistry, replaceVariables, theme, timeZone,
  });
  cacheFieldDisplayNames(fields);
  return fields;
}

function Stat({ panel, frames, width, height }) {
  const { options } = panel;
  const values = getFieldDisplayValues({
    fieldConfig: panel.fieldConfig, reduceOptions: options.reduceOptions, replaceVariables, theme, data: frames, timeZone,
  });
  return (
    <VizRepeater
      getValues={() => values} source={frames} width={width} height={height} orientation={options.orientation || VizOrientation.Auto}
      autoGrid renderCounter={0}
      renderValue={({ value, width, height, count }) => (
        <BigValue value={value.display} width={width} height={height} count={count} theme={theme} {...options} />
      )}
    />
  );
}

function Lines({ panel, frames, width, height, marks }) {
  return (
    <TimeSeries
      frames={frames.map(drawable)} width={width} height={height} timeRange={timeRange} timeZone={timeZone} legend={panel.options.legend}
    >
      {(builder) => { builder.addHook('draw', (plot) => marks.forEach((mark) => draw(plot, mark))); }}
    </TimeSeries>
  );
}

// drawable leaves out of a frame what is no number, as Grafana does.
const drawable = (frame) => ({
  ...frame, fields: frame.fields.map((field) => ({ ...field, values: field.values.map((value) => Number.isFinite(value) ? value : null) })),
});

// draw marks a time in a plot, as Grafana's own plugin for annotations does.
function draw({ ctx, bbox, valToPos }, { start, end, color }) {
  const [left, right] = [start, end].map((time) => valToPos(time, 'x', true));
  const bottom = bbox.top + bbox.height;
  ctx.save();
  ctx.fillStyle = ctx.strokeStyle = theme.visualization.getColorByName(color);
  ctx.setLineDash([5, 5]);
  for (const x of [left, right]) {
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bottom);
    ctx.stroke();
  }
  ctx.fillRect(left, bottom, right - left, 5);
  ctx.globalAlpha = 0.1;
  ctx.fillRect(left, bbox.top, right - left, bbox.height);
  ctx.restore();
}

function Rows({ panel, frames, width, height }) {
  const { showTypeIcons, cellHeight, showHeader } = panel.options;
  return (
    <TableNG
      data={frames[0]} width={width} height={height} noHeader={!showHeader} showTypeIcons={showTypeIcons} cellHeight={cellHeight}
      fieldConfig={panel.fieldConfig} enableVirtualization={false}
    />
  );
}

const kinds = { stat: Stat, timeseries: Lines, table: Rows };

// transformed is what becomes of the frames of a panel, later.
export const transformed = (panel, frames) => new Promise((done, failed) => {
  transformDataFrame(panel.transformations ?? [], frames, { interpolate: replaceVariables }).subscribe({ next: done, error: failed });
});

// Panel is one with its frame and title.
export function Panel({ panel, frames, width, height, marks }) {
  const Kind = kinds[panel.type];
  if (!Kind) {
    throw new Error(`panel "${panel.title}": nothing draws the type "${panel.type}" yet`);
  }
  const data = configured(panel, use(frames));
  return (
    <PanelChrome
      title={panel.title} description={panel.description} width={width} height={height} padding={panel.type === 'table' ? 'none' : 'md'}
    >
      {(innerWidth, innerHeight) => <Kind panel={panel} frames={data} width={innerWidth} height={innerHeight} marks={marks} />}
    </PanelChrome>
  );
}
