// Makes Grafana's data frames of what Prometheus has answered, as the data source of Grafana does.
import { FieldType, formatLabels, toDataFrame } from '@grafana/data';
import answers from 'answers';

// shown is the range of the dashboard.
export const shown = { from: Date.parse(answers.from), to: Date.parse(answers.to) };

// number reads a value of Prometheus.
const number = (text) => Number(text.replace('Inf', 'Infinity'));

// points are the times and values of a series, be it of now or over time.
const points = ({ value, values }) => (values ?? [value]).map(([seconds, text]) => [seconds * 1000, number(text)]);

// nameOf is what a query calls a series. Without a name Grafana takes the labels.
function nameOf({ legendFormat, expr }, labels) {
  if (legendFormat === '__auto') {
    return Object.keys(labels).length > 0 ? undefined : expr;
  }
  return legendFormat.replace(/{{\s*(.+?)\s*}}/g, (_, label) => labels[label] ?? '') || formatLabels(labels);
}

function seriesOf(target, series) {
  const { __name__: metric = 'Value', ...labels } = series.metric;
  const over = points(series);
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: over.map(([time]) => time), config: { interval: answers.step * 1000 } },
      { name: metric, type: FieldType.number, values: over.map(([, value]) => value), labels,
        config: { displayNameFromDS: nameOf(target, labels) } },
    ],
  });
}

function tableOf(target, all) {
  const labels = [...new Set(all.flatMap(({ metric }) => Object.keys(metric)))].sort();
  const now = all.map((series) => points(series)[0]);
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: now.map(([time]) => time) },
      ...labels.map((label) => ({ name: label, type: FieldType.string, values: all.map(({ metric }) => metric[label] ?? '') })),
      { name: 'Value', type: FieldType.number, values: now.map(([, value]) => value) },
    ],
  });
}

// framesOf are the answers to the queries of a panel.
export const framesOf = (panel, index) => panel.targets.flatMap((target, i) => {
  const all = answers.panels[index][i];
  return target.format === 'table' ? [tableOf(target, all)] : all.map((series) => seriesOf(target, series));
});

// marksOf are the times between which a query of an annotation had an answer.
export const marksOf = (index) => answers.annotations[index].flatMap((series) => {
  const marks = [];
  for (const [time] of points(series)) {
    const last = marks.at(-1);
    if (last && time <= last.end + 1000 * answers.step) {
      last.end = time;
    } else {
      marks.push({ start: time, end: time });
    }
  }
  return marks;
});
