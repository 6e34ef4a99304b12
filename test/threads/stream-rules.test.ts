import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { runCli } from '../helpers/run-cli.ts';
import { calls, reply, text, toolUse, type WireRequest } from '../helpers/wire-server.ts';

const WRITE = '<execute><tool>rye/file-system/write</tool></execute>';
// in two pieces, so that no scanner takes it for a leak
const TOKEN = `ghp_${'a1B2'.repeat(9)}`;

async function lab(): Promise<Lab> {
  const made = await openLab();
  onTestFinished(async () => await made.remove());
  return made;
}

function rule(frontmatter: string, body = 'Do not say so.'): string {
  return `---\n${frontmatter}\n---\n${body}\n`;
}

/** The user's text in a request, all of it. */
function told({ body }: WireRequest): string {
  return JSON.stringify(body.messages);
}

function systemOf({ body }: WireRequest): string {
  return JSON.stringify(body.system ?? '');
}

function ofType(events: readonly (LogEvent | UnknownEvent)[], type: string) {
  return events.filter(({ event_type }) => event_type === type).map(({ payload }) => payload);
}

it('a key-shaped string in a file is stopped before the file is written, and the model rewrites it', async () => {
  const here = await lab();
  const { requests } = await here.model([
    calls(
      text('I store it.'),
      toolUse('rye_file_system_write', { path: 'a.env', content: `TOKEN=${TOKEN} # and more` }),
    ),
    calls(toolUse('rye_file_system_write', { path: 'a.env', content: 'TOKEN=\n' })),
    reply('Done.'),
  ]);
  here.signed('directives/job.md', directive('job', { permissions: WRITE }));
  const result = await here.run('job');
  expect(result).toMatchObject({ status: 'completed', result: 'Done.' });
  const events = await here.events(result.thread_id);
  expect(ofType(events, 'rule_matched')).toMatchObject([
    {
      rule: 'secret-vcs-token',
      stream: 'tool',
      tool: 'rye/file-system/write',
      path: 'a.env',
      interrupted: true,
    },
  ]);
  expect(ofType(events, 'tool_call_start')).toHaveLength(1);
  const second = requests[1];
  expect(second && told(second)).toContain('rule=\\"secret-vcs-token\\" path=\\"a.env\\"');
  expect(second && told(second)).not.toContain(TOKEN);
  expect(await here.rye().threads.verify(result.thread_id)).toMatchObject({ ok: true });
});

it("a project's rule watches its threads; hooks hear of it", async () => {
  const here = await lab();
  await here.model([reply('This is FORBIDDEN.'), reply('Fine.')]);
  here.signed('rules/team/no-word.md', rule('condition: FORBIDDEN'));
  here.signed(
    'config/agent/hooks.yaml',
    'hooks:\n  - id: heard\n    event: rule_triggered\n    action: {emit: heard, data: {rule: "${rule}", cut: "${interrupted}"}}\n',
  );
  here.signed('directives/job.md', directive('job'));
  const result = await here.run('job');
  expect(result).toMatchObject({ status: 'completed', result: 'Fine.' });
  const events = await here.events(result.thread_id);
  expect(ofType(events, 'hook_fired')).toEqual(
    expect.arrayContaining([expect.objectContaining({ id: 'heard', event: 'rule_triggered' })]),
  );
  expect(ofType(events, 'rule_injection')).toMatchObject([
    { rules: [{ name: 'no-word' }], turn: 1 },
  ]);
});

it('an unsigned rule is skipped with a notice, and hides no shipped rule of its name', async () => {
  const here = await lab();
  await here.model([
    calls(toolUse('rye_file_system_write', { path: 'a.env', content: `TOKEN=${TOKEN} ` })),
    reply('Done.'),
  ]);
  here.write('rules/secret-vcs-token.md', rule('enabled: false\ncondition: x'));
  here.signed('directives/job.md', directive('job', { permissions: WRITE }));
  const { warnings, rules } = await here.rye().threads.plan({ directiveId: 'job' });
  expect(warnings.join('\n')).toContain('rule secret-vcs-token is not signed [unsigned]');
  expect(rules?.stream.find(({ name }) => name === 'secret-vcs-token')?.space).toBe('system');
  await here.run('job');
  expect(existsSync(path.join(here.project, 'a.env'))).toBe(false);
});

it('a signed rule of the project replaces a shipped one, or disables it', async () => {
  const here = await lab();
  here.signed('rules/secret-vcs-token.md', rule('enabled: false\ncondition: x'));
  here.signed('rules/ts-no-any.md', rule('condition: MINE'));
  here.signed('directives/job.md', directive('job'));
  await here.model([reply('x')]);
  const { rules } = await here.rye().threads.plan({ directiveId: 'job' });
  const names = rules?.stream.map(({ name }) => name) ?? [];
  expect(names).not.toContain('secret-vcs-token');
  expect(rules?.stream.find(({ name }) => name === 'ts-no-any')?.conditions).toEqual(['MINE']);
});

it("a project's settings count only when they are signed", async () => {
  const here = await lab();
  await here.model([reply('x')]);
  here.signed('directives/job.md', directive('job'));
  const count = async () =>
    (await here.rye().threads.plan({ directiveId: 'job' })).rules?.stream.length;
  here.write('config/agent/rules.yaml', 'enabled: false\n');
  expect(await count()).toBeGreaterThan(20);
  here.signed('config/agent/rules.yaml', 'enabled: false\n');
  expect(await count()).toBe(0);
});

it('rules without a condition are told from the start, or listed for those who may fetch them', async () => {
  const here = await lab();
  const { requests } = await here.model([
    calls(toolUse('rye_fetch', { item_type: 'rule', item_id: 'team/style' })),
    reply('Done.'),
  ]);
  here.signed('rules/team/tone.md', rule('always_apply: true', 'Be brief.'));
  here.signed('rules/team/style.md', rule('description: How we write code', 'Two spaces.'));
  here.signed(
    'directives/job.md',
    directive('job', { permissions: '<fetch><rule>*</rule></fetch>' }),
  );
  here.signed('directives/poor.md', directive('poor'));
  await here.run('job');
  const [first, second] = requests;
  expect(first && systemOf(first)).toContain('Be brief.');
  expect(first && systemOf(first)).toContain('team/style: How we write code');
  expect(first && systemOf(first)).not.toContain('Two spaces.');
  expect(second && told(second)).toContain('Two spaces.');
  const { context } = await here.rye().threads.plan({ directiveId: 'poor' });
  expect(context.map(({ id }) => id)).toEqual(['rule:tone']);
});

it('a reminder without end stops at the cap, and the thread completes with its answer', async () => {
  const here = await lab();
  const { requests } = await here.model(Array.from({ length: 12 }, () => reply('MILD')));
  here.signed(
    'rules/mild.md',
    rule('condition: MILD\ninterrupt: never\nrepeat: after-gap\ngap: 0'),
  );
  here.signed('directives/job.md', directive('job', { limits: 'turns="12" spend="0.10"' }));
  const result = await here.run('job');
  expect(result).toMatchObject({ status: 'completed', result: 'MILD' });
  expect(requests).toHaveLength(6);
  const events = await here.events(result.thread_id);
  expect(ofType(events, 'rule_injection')).toHaveLength(5);
  expect(ofType(events, 'rule_matched').at(-1)).toMatchObject({ outcome: 'recorded' });
});

it('a resumed thread remembers what it was told', async () => {
  const here = await lab();
  await here.model([reply('FORBIDDEN'), reply('Fine.'), reply('FORBIDDEN again')]);
  here.signed('rules/no-word.md', rule('condition: FORBIDDEN'));
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  const resumed = await here.rye().recovery.resume({ threadId: thread_id, message: 'Go on.' });
  expect(resumed).toMatchObject({ status: 'completed', result: 'FORBIDDEN again' });
});

it('a rule with engine: js interrupts a real run', async () => {
  const here = await lab();
  await here.model([reply('foobaz'), reply('Fine.')]);
  here.signed('rules/js.md', rule("condition: 'foo(?!bar)'\nengine: js"));
  here.signed('directives/job.md', directive('job'));
  expect(await here.run('job')).toMatchObject({ status: 'completed', result: 'Fine.' });
});

it('the commands list, try and scan', async () => {
  const here = await lab();
  const folder = here.project;
  const run = async (...args: string[]) =>
    await runCli(['rules', ...args], { cwd: folder, env: { HOME: here.home } });
  here.signed(
    'rules/team/no-word.md',
    rule('condition: FORBIDDEN\nscope: text, tool\ndescription: A word'),
  );
  here.signed('rules/broken.md', rule("condition: '(x'"));
  here.write('rules/unsigned.md', rule('condition: x'));
  const list = await run('list');
  expect(list.stdout).toMatch(/^stream +no-word +project +always +once +A word$/m);
  expect(list.stdout).toMatch(/^unused +broken /m);
  expect(list.stderr).toMatch(/ignoring .*unsigned\.md: .*\n.*rule broken .*condition \(x/);
  expect(JSON.parse((await run('list', '--json')).stdout)).toMatchObject({
    success: true,
    refused: [{}],
  });
  const test = await run('test', 'one\nFORBIDDEN', '--json');
  expect(JSON.parse(test.stdout)).toMatchObject({
    hits: [{ rule: 'no-word', interrupts: true, line: 2 }],
  });
  expect(await run('test', 'fine', '--rule', 'no-word')).toMatchObject({ code: 1 });
  expect(await run('test', 'fine', '--rule', 'no-wrd')).toMatchObject({
    code: 6,
    stderr: expect.stringContaining('Did you mean no-word?'),
  });
  here.write('../src/a.ts', 'const x = y as any;\n');
  here.write('../src/b.ts', 'const x = 1;\n');
  here.write('../src/c.ts', 'as any;\0');
  const scan = await run('scan', 'src');
  expect(scan).toMatchObject({
    code: 1,
    stdout: 'src/a.ts:1: ts-no-any\n2 files checked, 1 skipped, 1 hit\n',
  });
  expect(await run('scan', 'src/b.ts')).toMatchObject({ code: 0 });
  expect(await run('scan', 'nowhere')).toMatchObject({ code: 6 });
  expect((await run('test', 'src/a.ts')).stdout).toMatch(/^ts-no-any +reminds +line 1$/m);
});
