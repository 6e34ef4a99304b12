import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

/** Command lines that succeed in a project with the finished thread `t`, its entry E and a broken directive. */
const FINE = [
  'list directive',
  'fetch directive hello',
  'search hello',
  'verify directive hello',
  'verify thread t',
  'validate directive hello',
  'sign directive example',
  'run hello --dry-run',
  'run hello',
  'execute tool rye/core/greet --param who=Ada',
  'threads',
  'threads tree',
  'threads show t',
  'threads logs t',
  'threads logs t --unverified',
  'threads stats',
  'threads wait t',
  'threads deliveries t',
  'threads cancel t',
  'threads entries t',
  'threads label t E x',
  'threads rename t x',
  'threads replay t --verify',
  'threads export t',
  'threads undo t',
  'threads branch t --at E',
  'threads recover',
  'threads gc --dry-run',
  'threads resume t -m more',
  'approvals',
  'schedule',
  'keys',
  'hooks list',
  'rules list',
  'models',
  'mcp list',
  'config get resilience.limits.turns',
  'chat',
];

/** Command lines that fail, each at another point. */
const FAILING = [
  'nonsense',
  'run hello --bogus',
  'run nosuch',
  'run broken',
  'run hello --input nope=1',
  'run hello --limit turns=0',
  'run hello --thread-id t',
  'run hello --provider anthropic',
  'run hello --continue --model x',
  'run hello --async --output x',
  'execute tool nosuch',
  'execute tool rye/file-system/read --param path=/etc/hostname',
  'execute tool rye/core/greet --param nope=1',
  'ask',
  'ask hi --provider nosuch',
  'ask hi --continue',
  'chat --continue',
  'chat --thread nosuch',
  'fetch directive nosuch',
  'search hello after:2026-02-31',
  'verify directive broken',
  'verify thread nosuch',
  'validate directive broken',
  'sign directive broken',
  'threads show nosuch',
  'threads tree nosuch',
  'threads logs nosuch',
  'threads wait nosuch',
  'threads steer nosuch hi',
  'threads resume nosuch',
  'threads label t zzzz x',
  'threads branch t --at zzzz',
  'threads export t --branch zzzz',
  'threads export t --out no/such/file.md',
  'threads undo nosuch',
  'threads import nosuch.jsonl',
  'threads open t',
  'threads recover nosuch',
  'threads gc --older-than x',
  'approvals --watch --state denied',
  'approve apr-0000',
  'approvals verify apr-0000',
  'schedule pause nosuch',
  'schedule add n --cron x hello',
  'schedule add n --cron 0_3_*_*_* --missed once --print cron hello',
  'keys revoke nosuch',
  'config get nosuch.member',
];

it('every command prints one document with --json, with an error if and only if it fails', async () => {
  const here = await workspace();
  await here.rye(['run', 'hello', '--thread-id', 't']);
  writeFileSync(path.join(here.project, '.ai/directives/broken.md'), '# Broken\n');
  const { entries } = await here.json(['threads', 'entries', 't']);
  const entry = (entries as readonly { readonly id: string }[])[0]?.id ?? '';
  const wrong: string[] = [];
  const look = async (line: string, succeeds: boolean): Promise<void> => {
    const args = line.split(' ').map((word) => (word === 'E' ? entry : word.replaceAll('_', ' ')));
    const { stdout, code } = await here.rye([...args, '--json']);
    let document: Record<string, unknown> = {};
    try {
      document = JSON.parse(stdout) as Record<string, unknown>;
    } catch {
      wrong.push(`${line}: ${stdout.slice(0, 200)}`);
      return;
    }
    const seen = [document['success'], code === 0, !('error' in document)];
    if (seen.some((one) => one !== succeeds)) wrong.push(`${line}: ${stdout.slice(0, 200)}`);
  };
  for (const line of FINE) await look(line, true);
  for (const line of FAILING) await look(line, false);
  expect(wrong).toEqual([]);
}, 300_000);
