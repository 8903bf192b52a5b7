// Has Chromium take the picture of the page that bundle.js has made, and notes in it which dashboard it shows:
//
//	node shoot.js DASHBOARD.json FOLDER PICTURE.png
//
// CHROMIUM names another program than chromium.
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { crc32 } from 'node:zlib';
import { page, pageHeight } from './grid.js';

const [dashboard, folder, picture] = process.argv.slice(2).map((path) => resolve(path));
const taken = `${folder}/page.png`;

take(Math.ceil(pageHeight(JSON.parse(readFileSync(dashboard)).panels)));
// "make verify" looks for this text.
const blob = execFileSync('git', ['hash-object', dashboard], { encoding: 'utf8' }).trim();
writeFileSync(picture, noted(readFileSync(taken), 'Source', `blob:${blob}`));

function take(height) {
  const chromium = spawnSync(process.env.CHROMIUM || 'chromium', [
    '--headless', '--disable-gpu', '--hide-scrollbars', '--force-device-scale-factor=1', `--window-size=${page},${height}`,
    '--allow-file-access-from-files', // the icons
    ...process.getuid() === 0 ? ['--no-sandbox'] : [], // it has none for root
    '--virtual-time-budget=20000', '--enable-logging=stderr', `--screenshot=${taken}`, `file://${folder}/page.html`,
  ], { encoding: 'utf8' });
  const failed = chromium.error ?? chromium.stderr.split('\n').find((line) => line.includes('Uncaught'));
  if (failed || chromium.status !== 0) {
    throw new Error(`Chromium has not drawn ${folder}/page.html: ${failed ?? chromium.stderr}`);
  }
}

// noted puts a text into a PNG, as its second chunk.
function noted(png, keyword, text) {
  const header = 8 + 25; // the signature, and the chunk that comes first
  const chunk = Buffer.from(`tEXt${keyword}\0${text}`, 'latin1');
  const length = Buffer.alloc(4), sum = Buffer.alloc(4);
  length.writeUInt32BE(chunk.length - 4);
  sum.writeUInt32BE(crc32(chunk));
  return Buffer.concat([png.subarray(0, header), length, chunk, sum, png.subarray(header)]);
}
