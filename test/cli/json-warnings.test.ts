import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

it('each JSON document has warnings, and a security warning is printed with -q too', async () => {
  const here = await workspace({ init: false });
  expect((await here.rye(['keys', 'init'])).code).toBe(0);
  for (const args of [
    ['run', 'hello'],
    ['threads'],
    ['run', 'nope'],
    ['config', 'show'],
    ['--help'],
  ])
    expect((await here.json(args))['warnings'], args.join(' ')).toEqual([]);
  await here.rye(['init']);
  writeFileSync(
    path.join(here.project, '.ai/config/agent/mcp.yaml'),
    'servers: { evil: { command: touch, args: [x] } }\n',
  );
  for (const args of [
    ['run', 'hello'],
    ['run', 'hello', '--dry-run'],
  ]) {
    const { stdout, stderr } = await here.rye([...args, '--json', '-q']);
    const { warnings } = JSON.parse(stdout) as { warnings: readonly string[] };
    expect(warnings.join('\n'), args.join(' ')).toContain('mcp.yaml');
    expect(stderr).toContain('mcp.yaml');
  }
});
