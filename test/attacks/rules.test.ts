// Requirement: rules-see-what-runs
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parse } from 'yaml';
import { calls, house, toolUse } from '../approvals/house.ts';
import { reply, type WireScript } from '../helpers/wire-server.ts';
import { directive, inLab, type Lab, settledCode } from './lab.ts';

const ALL = `<execute><tool>rye/file-system/*</tool><tool>rye/bash</tool><tool>rye/core/greet</tool></execute><execute><directive>*</directive></execute><acknowledge risk="elevated">a test</acknowledge>`;
const SECRET = 'swordfish-4321';

type Call = readonly [name: string, input: object];

/** Makes the calls one after the other, and returns how each ended. */
async function outcomes(lab: Lab, made: readonly Call[]): Promise<readonly string[]> {
  lab.signed(
    'directives/job.md',
    directive('job', { limits: 'turns="90" spend="0.10"', permissions: ALL }),
  );
  const script: WireScript = [
    ...made.map(([name, input]) => calls(toolUse(name, input))),
    reply('done'),
  ];
  await lab.model(script);
  const result = await lab.run('job');
  return await Promise.all(made.map(async (_, at) => await settledCode(lab, result, at)));
}

async function hooks(lab: Lab, ...all: readonly object[]): Promise<void> {
  const named = all.map((one, at) => ({
    id: `guard_${at}`,
    event: 'tool_gate',
    action: { control: 'fail', error: 'guarded' },
    ...one,
  }));
  lab.write('config/agent/hooks.yaml', JSON.stringify({ hooks: named }));
  await lab.sign('config', 'agent/hooks');
}

function plant({ project }: Lab): void {
  for (const folder of ['private', 'docs', 'other']) mkdirSync(join(project, folder));
  writeFileSync(join(project, 'private/token.txt'), SECRET);
  writeFileSync(join(project, 'docs/a.md'), 'a');
  symlinkSync('private', join(project, 'open'));
  symlinkSync('private/token.txt', join(project, 'a.txt'));
}

it('a gate over a path sees the real path, and each file that a search opens', async () => {
  await inLab(async (lab) => {
    plant(lab);
    await hooks(lab, { condition: { path: 'input.path', op: 'regex', value: '^private/' } });
    const read = (path: string): Call => ['rye_file_system_read', { path }];
    const made: readonly Call[] = [
      read('private/token.txt'),
      read('./private/token.txt'),
      read('docs/../private/token.txt'),
      read('private//token.txt'),
      read('private/token.txt/'),
      read('open/token.txt'),
      read('a.txt'),
      read(join(lab.project, 'private/token.txt')),
      ['rye_file_system_write', { path: 'open/new.txt', content: 'x' }],
      ['rye_file_system_write', { path: 'docs/../private/new.txt', content: 'x' }],
      ['rye_file_system_edit', { path: 'open/token.txt', old_string: 'sword', new_string: 'x' }],
      ['rye_file_system_grep', { pattern: 'fish' }],
      ['rye_file_system_grep', { pattern: 'fish', path: '.' }],
      ['rye_file_system_grep', { pattern: 'fish', path: 'private' }],
      ['rye_file_system_grep', { pattern: 'fish', path: 'open', output_mode: 'count' }],
      ['rye_file_system_grep', { pattern: 'fish', path: 'a.txt' }],
      ['rye_file_system_grep', { pattern: 'fish', glob: '*.txt' }],
      [
        'rye_execute',
        { item_type: 'tool', item_id: 'rye/file-system/grep', parameters: { pattern: 'fish' } },
      ],
      [
        'rye_execute',
        { item_type: 'tool', item_id: 'rye/file-system/read', parameters: { path: 'a.txt' } },
      ],
    ];
    const ended = await outcomes(lab, made);
    made.forEach((call, at) => expect([call, ended[at]]).toEqual([call, 'hook_failed']));
    expect(
      await outcomes(lab, [
        read('docs/a.md'),
        ['rye_file_system_grep', { pattern: 'a', glob: '*.md' }],
      ]),
    ).toEqual(['ok', 'ok']);
  });
});

it('a gate over all but a folder is not passed by a way out of it', async () => {
  await inLab(async (lab) => {
    plant(lab);
    await hooks(lab, { condition: { not: { path: 'input.path', op: 'regex', value: '^docs/' } } });
    symlinkSync('../private', join(lab.project, 'docs/in'));
    const made: readonly Call[] = [
      ['rye_file_system_read', { path: 'docs/../private/token.txt' }],
      ['rye_file_system_read', { path: 'docs/in/token.txt' }],
      ['rye_file_system_read', { path: 'docs/a.md' }],
    ];
    expect(await outcomes(lab, made)).toEqual(['hook_failed', 'hook_failed', 'ok']);
  });
});

it('a handler of a program gets real paths, the files of a search, and the commands of a line', async () => {
  await inLab(async (lab) => {
    plant(lab);
    const seen: unknown[] = [];
    const tool_gate = ({ input, files, commands }: Record<string, unknown>): undefined => {
      seen.push([(input as Record<string, unknown>)['path'], files, commands]);
    };
    lab.signed('directives/job.md', directive('job', { permissions: ALL }));
    const use = [
      toolUse('rye_file_system_read', { path: './open/token.txt' }, 'a'),
      toolUse('rye_file_system_grep', { pattern: 'x', path: 'open' }, 'b'),
      toolUse('rye_bash', { command: 'true; X=1  echo "$HOME"' }, 'c'),
      toolUse('rye_bash', { command: '$x' }, 'd'),
    ];
    await lab.model([calls(...use), reply('done')]);
    await lab.rye({ preset: { handlers: { tool_gate } } }).threads.execute({ directiveId: 'job' });
    expect(seen).toEqual([
      ['private/token.txt', undefined, undefined],
      ['private', ['private/token.txt'], undefined],
      [undefined, undefined, ['true', 'echo …']],
      [undefined, undefined, null],
    ]);
  });
});

it('a gate over a command sees each command of a line, and refuses what it cannot read', async () => {
  await inLab(async (lab) => {
    await hooks(
      lab,
      {
        condition: {
          all: [
            { path: 'tool', op: 'eq', value: 'rye/bash' },
            { path: 'input.command', op: 'regex', value: '^git push' },
          ],
        },
      },
      {
        condition: {
          all: [
            { path: 'tool', op: 'eq', value: 'rye/core/greet' },
            { path: 'input.who', op: 'eq', value: 'Bob' },
          ],
        },
      },
    );
    const lines = [
      'true; git  push',
      'git -c a=b push',
      'g=push; git $g',
      "sh -c 'git push'",
      'echo "',
      'sudo -n git push',
    ];
    const made: readonly Call[] = [
      ...lines.map((command): Call => ['rye_bash', { command }]),
      [
        'rye_execute',
        { item_type: 'tool', item_id: 'rye/bash', parameters: { command: 'true && git push' } },
      ],
      ['rye_core_greet', { who: 'Bob' }],
      ['rye_execute', { item_type: 'tool', item_id: 'rye/core/greet', parameters: { who: 'Bob' } }],
    ];
    const ended = await outcomes(lab, made);
    made.forEach((call, at) => expect([call, ended[at]]).toEqual([call, 'hook_failed']));
    expect(await outcomes(lab, [['rye_bash', { command: 'echo push "$HOME" | cat' }]])).toEqual([
      'ok',
    ]);
  });
});

/** The rules that docs/approvals.md prints. */
function printedRules(): readonly Record<string, unknown>[] {
  const page = readFileSync('docs/approvals.md', 'utf8');
  const [, file = ''] =
    /```yaml file=\.ai\/config\/agent\/approvals\.yaml\n([^]*?)```/.exec(page) ?? [];
  const { rules } = parse(file) as { rules: readonly Record<string, unknown>[] };
  return rules.map((rule) => ({ ...rule, ask: 'me', quorum: 1 }));
}

it.each([
  ['rye_bash', { command: 'git  push' }],
  ['rye_bash', { command: 'git -c a=b push' }],
  ['rye_bash', { command: 'g=push; git $g' }],
  ['rye_bash', { command: '"git" pu\'\'sh' }],
  ['rye_bash', { command: 'true\n/usr/bin/git --no-pager push' }],
  ['rye_bash', { command: 'env X=1 git -C . push' }],
  ['rye_bash', { command: 'echo Z2l0IHB1c2g= | base64 -d | sh' }],
  ['rye_file_system_write', { path: 'deploy/x', content: 'x' }],
  ['rye_file_system_write', { path: './deploy/x', content: 'x' }],
  ['rye_file_system_write', { path: 'a/../deploy/x', content: 'x' }],
  ['rye_file_system_write', { path: 'link/x', content: 'x' }],
] as const)('the rules of approvals.md ask about %s %o', async (name, input) => {
  const here = await house(calls(toolUse(name, input)));
  mkdirSync(join(here.project, 'deploy'));
  symlinkSync('deploy', join(here.project, 'link'));
  here.signed('directives/job.md', directive('job', { permissions: ALL }));
  here.policy({ rules: printedRules().filter(({ risk }) => risk === undefined) });
  const { id } = await here.asks('job');
  expect((await here.row(id)).request.rule).toContain('project rules.');
});

it('a weak rule about one command hides no strong rule about another one of the line', async () => {
  const here = await house(calls(toolUse('rye_bash', { command: 'ls; git push' })));
  const lead = await here.person('lead');
  here.signed('directives/job.md', directive('job', { permissions: ALL }));
  const when = (matches: string) => ({ argument: 'command', matches });
  here.policy(
    {
      rules: [
        { tool: 'rye/bash', when: when('^ls'), ask: 'me' },
        { tool: 'rye/bash', when: when('^git push'), ask: ['me', 'lead'], quorum: 2 },
      ],
    },
    [lead],
  );
  const { id } = await here.asks('job');
  expect((await here.row(id)).request.quorum).toBe(2);
});
