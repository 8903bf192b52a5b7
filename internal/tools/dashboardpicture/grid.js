// Where Grafana places the panels of a dashboard, in pixels.
const columns = 24, cell = 30;

export const margin = 8, page = 1440, heading = 48;

const column = (page - 2 * margin + margin) / columns;

export const left = ({ x }) => margin + x * column;
export const top = ({ y }) => heading + y * (cell + margin);
export const width = ({ w }) => w * column - margin;
export const height = ({ h }) => h * (cell + margin) - margin;

// pageHeight is that of all panels.
export const pageHeight = (panels) => Math.max(...panels.map(({ gridPos }) => top(gridPos) + height(gridPos))) + margin;
