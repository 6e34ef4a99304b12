// Requirement: shown-is-what-runs
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createColors } from '../../src/faces/ui/colors.ts';
import { requestLines, wholeCall } from '../../src/faces/ui/dialogs/approval-lines.ts';
import { calls, type House, house, pusher, toolUse } from '../approvals/house.ts';
import { directive, shellTool } from './lab.ts';

const ESC = '\u001b';
const BEL = '\u0007';

/** Commands that a display could hide a part of, and what a person has to see of each. */
const COMMANDS: readonly (readonly [name: string, command: string, seen: string])[] = [
  ['an unfinished title', `true ${ESC}]0;\nrm -rf mark1`, 'rm -rf mark1'],
  ['a finished title', `true ${ESC}]0;$(touch mark2)${BEL}`, '␛]0;$(touch mark2)␇'],
  ['a link', `x=${ESC}]8;;$(touch mark3)${ESC}\\`, '␛]8;;$(touch mark3)␛\\'],
  ['a clipboard write', `true ${ESC}]52;c;cm0gLXJm${BEL}`, '␛]52;c;cm0gLXJm␇'],
  ['CSI erase', `rm mark4 ${ESC}[2K${ESC}[1Gls`, 'rm mark4 ␛[2K␛[1Gls'],
  ['concealed text', `ls ${ESC}[8m; rm mark5`, 'ls ␛[8m; rm mark5'],
  ['DCS', `ls ${ESC}Pq; rm mark6${ESC}\\`, '␛Pq; rm mark6'],
  ['APC', `ls ${ESC}_x; rm mark7${ESC}\\`, '␛_x; rm mark7'],
  ['PM', `ls ${ESC}^x; rm mark8${ESC}\\`, '␛^x; rm mark8'],
  ['SOS', `ls ${ESC}Xx; rm mark9${ESC}\\`, '␛Xx; rm mark9'],
  ['C1 OSC', 'ls \u009d0;; rm mark10\u009c', '\\u{9d}0;; rm mark10\\u{9c}'],
  ['a carriage return', 'rm mark11\rls      ', 'rm mark11␍ls'],
  ['backspaces', 'rm mark12\b\b\b\b\b\bls', 'rm mark12␈␈␈␈␈␈ls'],
  ['a right-to-left override', 'echo \u202e31kram mr', 'echo \\u{202e}31kram mr'],
  ['isolates', 'echo \u2066rm mark14\u2069', '\\u{2066}rm mark14\\u{2069}'],
  ['zero-width spaces', 'r\u200bm mark15', 'r\\u{200b}m mark15'],
  ['a Hangul filler', 'x\u3164=1 rm mark16', 'x\\u{3164}=1 rm mark16'],
  ['tag characters', 'ls \u{e0072}\u{e006d}', 'ls \\u{e0072}\\u{e006d}'],
  ['spaces that do not break', 'rm\u00a0mark18', 'rm\\u{a0}mark18'],
  ['a soft hyphen', 'rm mark\u00ad19', 'rm mark\\u{ad}19'],
  ['a line separator', 'ls\u2028rm mark20', 'ls\\u{2028}rm mark20'],
  [
    'a look-alike host',
    'curl https://\u0430pi.github.com',
    '\\u{430}pi.github.com[xn--pi-6kc.github.com]',
  ],
  ['a look-alike program', '\u0441url mark22', '\\u{441}url mark22'],
  ['a Greek question mark', 'ls\u037erm mark23', 'ls\\u{37e}rm mark23'],
  ['a division slash', 'rm a\u2215mark24', 'rm a\\u{2215}mark24'],
  ['an imitated drawing', 'echo \\u{202e}mark25', 'echo \\u{5c}u{202e}mark25'],
  ['NUL', 'ls \u0000rm mark26', 'ls ␀rm mark26'],
  ['a byte order mark', 'r\ufeffm mark27', 'r\\u{feff}m mark27'],
  ['3,000 spaces', `ls${' '.repeat(3000)}; rm mark28`, '; rm mark28'],
];

/** Matches characters that a terminal obeys or does not show. */
const OBEYED = /[^\P{C}\t\n]|[\u2028\u2029\u3164\u00a0\u037e\u2215]/u;

async function asked(...uses: readonly ReturnType<typeof toolUse>[]): Promise<House> {
  const here = await house(calls(...uses));
  await here.json(['run', 'pusher', '--thread-id', 't'], 8);
  return here;
}

it('every view of a request shows every character of the call', async () => {
  const real = COMMANDS.slice(0, 3);
  const here = await asked(
    ...real.map(([, command]) => toolUse('rye_bash', { command, timeout_seconds: 77 })),
  );
  const waiting = await here.waiting();
  const [first] = waiting;
  if (!first) throw new Error('nothing waits');
  const list = await here.cli(['approvals']);
  const logs = await here.cli(['threads', 'logs', 't']);
  const entries = await here.cli(['threads', 'entries', 't']);
  for (const { stdout } of [list, logs, entries]) {
    expect(stdout).not.toMatch(OBEYED);
    for (const text of ['mark1', 'mark2', 'mark3']) expect(stdout).toContain(text);
  }
  expect(list.stdout).toContain('timeout_seconds: 77');
  const colors = createColors(false);
  const show = await here.cli(['approvals', 'show', first.id]);
  expect(show.stdout).toBe(`${requestLines(first, colors).join('\n')}\n`);
  // JSON is for programs: the same values, and nothing raw in it
  const json = await here.cli(['approvals', '--json']);
  expect(json.stdout).not.toMatch(/[^\P{C}\n]/u);
  for (const [name, command, seen] of COMMANDS) {
    const input = { command, timeout_seconds: 77 };
    const request = { ...first, input, preview: { ...first.preview, text: command } };
    const whole = requestLines(request, colors).join('\n');
    expect(whole, name).toContain(seen);
    expect(whole, name).toContain('timeout_seconds: 77');
    expect(whole, name).not.toMatch(OBEYED);
    const isOdd = name !== '3,000 spaces';
    expect(/has \d+ characters? that (?:is|are) not/.test(whole), name).toBe(isOdd);
    expect(wholeCall(request), name).toContain(seen.split('\n').at(-1));
  }
});

it('a file, a question and a reason are shown in full too', async () => {
  const content = `#!/bin/sh\n# ${ESC}]0;\nrm -rf /${BEL}\n`;
  const question = `May I read? ${ESC}]And delete?`;
  const here = await house(
    calls(
      toolUse('rye_file_system_write', { path: 'a.sh', content }),
      toolUse('rye_agent_ask', { question }),
    ),
  );
  here.policy({ rules: [{ tool: 'rye/file-system/write', ask: ['me'] }] });
  here.signed(
    'directives/pusher.md',
    directive('pusher', {
      permissions: '<execute><tool>rye/file-system/*</tool><tool>rye/agent/ask</tool></execute>',
    }),
  );
  await here.json(['run', 'pusher', '--thread-id', 't'], 8);
  const shown: string[] = [];
  for (const { id } of await here.waiting()) {
    shown.push((await here.cli(['approvals', 'show', id])).stdout);
  }
  expect(shown.join('\n')).toContain('+# ␛]0;');
  expect(shown.join('\n')).toContain('+rm -rf /␇');
  expect(shown.join('\n')).toContain('May I read? ␛]And delete?');
  await here.cli(['deny', (await here.waiting())[0]?.id ?? '', '--comment', `no${ESC}]x`]);
  const all = await here.cli(['approvals', '--state', 'all']);
  expect(all.stdout).not.toMatch(OBEYED);
});

it('no argument of a tool hides the others', async () => {
  const here = await house(
    calls(
      toolUse('deploy', { command: 'status', target: 'PRODUCTION-WIPE' }),
      toolUse('fetcher', { url: 'https://a.example', body: 'SECRET-BODY' }),
    ),
  );
  const parameters = (...names: readonly string[]): string =>
    `parameters: {${names.map((name) => `${name}: {type: string}`).join(', ')}}`;
  for (const [tool, ...names] of [
    ['deploy', 'command', 'target'],
    ['fetcher', 'url', 'body'],
  ] as const) {
    here.signed(
      `tools/${tool}.sh`,
      shellTool('true', `description: A tool.\n${parameters(...names)}`),
    );
  }
  here.signed(
    'directives/pusher.md',
    directive('pusher', {
      permissions:
        '<execute><tool ask="true">deploy</tool><tool ask="true">fetcher</tool></execute><acknowledge risk="elevated">x</acknowledge>',
    }),
  );
  await here.json(['run', 'pusher', '--thread-id', 't'], 8);
  const waiting = await here.waiting();
  expect(waiting).toHaveLength(2);
  const list = (await here.cli(['approvals'])).stdout;
  for (const { id, tool } of waiting) {
    const hidden = tool === 'deploy' ? 'PRODUCTION-WIPE' : 'SECRET-BODY';
    expect((await here.cli(['approvals', 'show', id])).stdout).toContain(hidden);
    expect(list).toContain(hidden);
  }
});

it('no person is asked about a text that is too long to read', async () => {
  const command = `true ${'x'.repeat(70_000)}\nrm -rf mark`;
  const here = await house(calls(toolUse('rye_bash', { command })));
  here.signed('directives/pusher.md', pusher('pusher', '5'));
  const { stdout, stderr } = await here.cli(['run', 'pusher', '--thread-id', 't']);
  expect(await here.waiting()).toEqual([]);
  expect(JSON.stringify(here.log('t')), `${stdout}${stderr}`).toContain(
    'a person can judge at most 65536',
  );
  expect(here.file('mark')).toBeUndefined();
});

it.each([
  ['out', 'a.yml', (project: string) => symlinkSync('.github/workflows', join(project, 'out'))],
  [
    '.',
    'x.yml',
    (project: string) => symlinkSync('.github/workflows/x.yml', join(project, 'x.yml')),
  ],
])(
  'a write below %s that became a link after the approval does not run',
  async (folder, file, link) => {
    const path = folder === '.' ? file : `${folder}/${file}`;
    const here = await house(
      calls(toolUse('rye_file_system_write', { path, content: 'on: push\n' })),
    );
    here.policy({ rules: [{ tool: 'rye/file-system/write', ask: ['me'] }] });
    mkdirSync(join(here.project, '.github/workflows'), { recursive: true });
    if (folder !== '.') mkdirSync(join(here.project, folder));
    await here.json(['run', 'pusher', '--thread-id', 't'], 8);
    const [request] = await here.waiting();
    const row = await here.row(request?.id ?? '');
    expect(row.request.files).toMatchObject([
      { path, real: path, folder: expect.stringMatching(/^\d+:\d+$/) as unknown },
    ]);
    if (folder !== '.') rmSync(join(here.project, folder), { recursive: true });
    link(here.project);
    await here.cli(['approve', request?.id ?? '', '--no-resume']);
    await here.cli(['threads', 'resume', 't']);
    expect(
      here.file('.github/workflows/a.yml') ?? here.file('.github/workflows/x.yml'),
    ).toBeUndefined();
    const again = await here.waiting();
    const shown = await here.cli(['approvals', 'show', again[0]?.id ?? 'none']);
    expect(shown.stdout).toContain(`(really .github/workflows/${file})`);
  },
);

it('a folder whose name looks like another reaches the terminal drawn', async () => {
  const here = await house();
  // the letter in the middle is Cyrillic
  const folder = 'p\u0430y';
  const theirs = join(here.project, folder, '.ai/directives');
  mkdirSync(theirs, { recursive: true });
  writeFileSync(join(theirs, 'greet.md'), directive('greet'));
  const { code, stdout } = await here.cli(['import', 'rye-os', folder]);
  expect([code, stdout]).toEqual([0, expect.not.stringContaining('\u0430')]);
  expect(stdout).toContain('rye import rye-os p\\u{430}y --apply\n');
}, 60_000);

it('names of files of a clone reach the terminal drawn', async () => {
  const here = await house();
  const name = `x${ESC}]52;c;aGk=${BEL}\u202ey`;
  writeFileSync(here.path(`directives/${name}.md`), directive('odd'));
  writeFileSync(here.path(`tools-${name}`), '');
  mkdirSync(here.path(`hooks${name}`), { recursive: true });
  for (const args of [
    ['list'],
    ['validate'],
    ['sign', 'directive', '*', '--dry-run'],
    ['search', 'attack'],
    ['lock'],
    ['run', name],
    ['show', 'directive', name],
    ['doctor'],
  ]) {
    const { stdout, stderr } = await here.cli(args);
    expect(`${stdout}${stderr}`, args.join(' ')).not.toMatch(OBEYED);
  }
}, 60_000);
