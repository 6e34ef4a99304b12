#!/usr/bin/env node
import { existsSync, readFileSync } from 'node:fs';

const program = new URL('../dist/cli/main.js', import.meta.url);
const [first, ...rest] = process.argv.slice(2);

if (rest.length === 0 && (first === '--version' || first === '-V')) {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  process.stdout.write(`${version}\n`);
} else if (existsSync(program)) {
  const { start } = await import(program.href);
  await start();
} else {
  process.stderr.write(
    'rye: the program is not built yet [internal]\nhint: Run `npm ci && npm run build` in its folder first.\n',
  );
  process.exitCode = 1;
}
