// Bundles the page with a dashboard and with what a Prometheus has answered to it:
//
//	node bundle.js DASHBOARD.json ANSWERS.json FOLDER
import { build } from 'esbuild';
import { cp, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';

const [dashboard, answers, folder] = process.argv.slice(2).map((path) => resolve(path));

await build({
  entryPoints: [new URL('page.jsx', import.meta.url).pathname],
  outfile: join(folder, 'page.js'),
  alias: { dashboard, answers },
  bundle: true,
  minify: true,
  jsx: 'automatic',
  loader: { '.ttf': 'empty', '.woff': 'empty', '.woff2': 'dataurl' },
  define: { 'process.env.NODE_ENV': '"production"' },
  logLevel: 'warning',
});
// Where Grafana's components look for their icons.
await cp(new URL('node_modules/@grafana/ui/dist/public', import.meta.url), join(folder, 'public', 'build'), { recursive: true });
await writeFile(join(folder, 'page.html'), `<!doctype html>
<meta charset="utf-8">
<link rel="stylesheet" href="page.css">
<body><div id="dashboard"></div><script src="page.js"></script></body>
`);
