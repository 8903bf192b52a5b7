// The page that is taken a picture of: the dashboard, panel by panel, with what a Prometheus has answered.
import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';
import { ThemeContext, dateTimeFormat } from '@grafana/data';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { Suspense } from 'react';
import { createRoot } from 'react-dom/client';
import board from 'dashboard';
import { framesOf, marksOf, shown } from './answers';
import { height, left, margin, top, width } from './grid';
import { Panel, theme, transformed } from './panels';

const placed = ({ gridPos }) => ({
  position: 'absolute', left: left(gridPos), top: top(gridPos), width: width(gridPos), height: height(gridPos),
});
const marks = board.annotations.list.flatMap(({ iconColor }, i) => marksOf(i).map((mark) => ({ ...mark, color: iconColor })));
const drawn = board.panels.map((panel, i) => ({ panel, frames: panel.type === 'row' ? null : transformed(panel, framesOf(panel, i)) }));
const clock = (time) => dateTimeFormat(time, { timeZone: 'utc', format: 'HH:mm:ss' });

const page = (
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ position: 'absolute', left: margin, right: margin, top: margin, display: 'flex', justifyContent: 'space-between' }}>
      <h3>{board.title}</h3>
      <span style={{ color: theme.colors.text.secondary }}>
        {board.annotations.list.map(({ name, iconColor }) => (
          <span key={name} style={{ marginRight: 16 }}>
            <span style={{ color: theme.visualization.getColorByName(iconColor) }}>▎</span>{name}
          </span>
        ))}
        {clock(shown.from)} to {clock(shown.to)} UTC
      </span>
    </div>
    {drawn.map(({ panel, frames }) => (
      <div key={panel.title} style={placed(panel)}>
        {panel.type === 'row' ? <h5 style={{ margin: 0, lineHeight: '30px' }}>{panel.title}</h5> : (
          <Suspense>
            <Panel panel={panel} frames={frames} width={width(panel.gridPos)} height={height(panel.gridPos)} marks={marks} />
          </Suspense>
        )}
      </div>
    ))}
    <PortalContainer />
  </ThemeContext.Provider>
);
createRoot(document.getElementById('dashboard')).render(page);
