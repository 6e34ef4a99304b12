import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { house, marks } from '../approvals/house.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { directive } from './lab.ts';

const FREE = directive('free', {
  limits: 'turns="9" spend="0.10"',
  permissions:
    '<execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
});

/** Acts that are for people alone, as command lines. */
const ACTS = {
  approve: 'approve ID --no-resume',
  deny: 'deny ID --comment x --no-resume',
  'sign directive': 'sign directive written',
  'sign config': 'sign config agent/hooks',
  'keys trust': 'keys trust other.pem --for sign,approve -y',
  'keys untrust': 'keys untrust OTHER -y',
  'keys revoke': 'keys revoke OTHER -y',
  'keys rotate': 'keys rotate -y',
  'lock accept': 'lock accept -y',
  'schedule add': 'schedule add nightly --cron "0 3 * * *" free',
  'models use': 'models use anthropic',
  'accept a head': 'verify thread THREAD --accept-head',
  'fleet init': 'fleet init --database postgres://u:p@127.0.0.1:9/x',
  'fleet enroll': 'fleet enroll --label w',
} as const;

/** Ways to leave the thread: the process has no ancestor, session or environment of it. */
const WAYS = {
  'a double fork with an empty environment': (line: string) =>
    `( (exec setsid env -i HOME="$HOME" PATH="$PATH" sh -c '${line}') & )`,
  'a raised limit': (line: string) =>
    `(setsid sh -c '(ulimit -x unlimited || ulimit -Hx unlimited || prlimit --pid $$ --locks=unlimited) 2>/dev/null; ulimit -x 7 2>/dev/null; exec env -i HOME="$HOME" PATH="$PATH" sh -c "${line}"' &)`,
  'a namespace of its own': (line: string) =>
    `(setsid unshare -U -r -m sh -c 'mount -t tmpfs none /proc 2>/dev/null; env -i HOME="$HOME" PATH="$PATH" sh -c "${line}"' &)`,
} as const;

// Requirement: approvals-not-from-threads, orphans-do-not-decide
it('an orphan of a tool decides, signs, trusts and schedules nothing', async () => {
  const here = await house(calls(marks('mark')));
  here.sandbox('off');
  here.signed('directives/free.md', FREE);
  here.write('directives/written.md', directive('written', {}));
  const other = await here.person('other');
  writeFileSync(join(here.project, 'other.pem'), readFileSync(join(other.home, 'own.pem')));
  const { id, threadId } = await here.asks();
  here.write('config/agent/hooks.yaml', 'hooks: []\n');
  const program = join(await cliPackage(), 'bin/rye.js');
  const rye = `${process.execPath} ${program} --project ${here.project} --user-space ${here.home}`;
  const words: Record<string, string> = { ID: id, OTHER: other.key.keyId, THREAD: threadId };
  const line = (act: string, out: string): string =>
    `${rye} ${act.replace(/ID|OTHER|THREAD/g, (word) => words[word] ?? '')} > ${out} 2>&1`;
  const scripts = Object.keys(WAYS).map((way, index) => {
    const acts = Object.entries(index === 0 ? ACTS : { approve: ACTS.approve });
    const lines = acts.map(([name, act]) => line(act, `'${way}: ${name}.out'`));
    writeFileSync(
      join(here.project, `acts${index}.sh`),
      `cd ${here.project}\n${lines.join('\n')}\ntouch done${index}\n`,
    );
    return acts.map(([name]) => `${way}: ${name}`);
  });
  const commands = Object.values(WAYS).map(
    (leave, index) =>
      `${leave(`sh ${here.project}/acts${index}.sh`)}; until [ -e done${index} ]; do sleep 0.02; done`,
  );
  let turns = 0;
  await here.model(() => {
    turns += 1;
    return turns === 1
      ? calls(...commands.map((command) => toolUse('rye_bash', { command })))
      : reply('done');
  });
  await here.json(['run', 'free']);
  const told = scripts.flat().map((name) => {
    const out = readFileSync(join(here.project, `${name}.out`), 'utf8');
    return [name, out.includes('[approval_refused]') ? 'refused' : out];
  });
  expect(Object.fromEntries(told)).toEqual(
    Object.fromEntries(scripts.flat().map((name) => [name, 'refused'])),
  );
  expect((await here.row(id)).decisions).toEqual([]);
}, 120_000);
