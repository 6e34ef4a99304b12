// Prints the commands that the README tells the reader of a clone to type, one a line: CI runs exactly these.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const readme = readFileSync(fileURLToPath(new URL('../README.md', import.meta.url)), 'utf8');
const [, block = ''] = /^```sh clone\n([\s\S]*?)^```$/m.exec(readme) ?? [];
const commands = block
  .split('\n')
  .map((line) => line.replace(/\s+#.*$/, ''))
  .filter((line) => line !== '');
if (commands.length === 0) throw new Error('README.md has no block of commands for a clone');
process.stdout.write(`${commands.join('\n')}\n`);
