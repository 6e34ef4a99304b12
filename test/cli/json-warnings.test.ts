import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

it('each JSON document has warnings, and a security warning is printed with -q too', async () => {
  const here = await workspace({ init: false });
  expect((await here.rye(['keys', 'init'])).code).toBe(0);
  for (const args of [
    ['run', 'hello', '-c', 'resilience.tools.sandbox=off'],
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

it('files of a clone that are not signed are named in one line, before anything else', async () => {
  const here = await workspace();
  const files = ['hooks', 'approvals', 'capability_risk', 'mcp', 'resilience', 'providers/mine'];
  mkdirSync(path.join(here.project, '.ai/config/agent/providers'), { recursive: true });
  for (const file of files)
    writeFileSync(path.join(here.project, `.ai/config/agent/${file}.yaml`), '{}\n');
  for (const args of [
    ['doctor'],
    ['models', 'list'],
    ['config', 'show'],
    ['hooks', 'list'],
    ['-q', 'doctor'],
  ]) {
    const { stderr } = await here.rye(args);
    const told = stderr.split('\n').filter((line) => line.startsWith('rye: ignored: '));
    expect(told, args.join(' ')).toHaveLength(1);
  }
  const { stdout, stderr } = await here.rye(['doctor', '--json']);
  expect(stderr).toMatch(
    /^rye: ignored: 6 files that are not signed \[unsigned\]: agent\/approvals, .*agent\/resilience \(only its lower limits apply\)\. Review them, then run: rye sign\n/,
  );
  // a program gets each with its own command
  const { warnings } = JSON.parse(stdout) as { warnings: readonly string[] };
  expect(warnings.filter((one) => one.includes('rye sign config agent/'))).toHaveLength(6);
});
