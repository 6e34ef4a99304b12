// Writes docs/cli.md from the command tree. Run with `npm run docs:cli`.
import { writeFileSync } from 'node:fs';
import { cliPage } from '../src/faces/cli/help-page.ts';

writeFileSync(new URL('../docs/cli.md', import.meta.url), await cliPage());
