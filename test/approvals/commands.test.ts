import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, it } from 'vitest';
import { directive, shellTool } from '../attacks/lab.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { calls, type House, house, marks, payloads, reply, toolUse } from './house.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Runs until two calls of one answer ask. */
async function twoAsked(): Promise<{
  readonly here: House;
  readonly threadId: string;
  readonly ids: readonly string[];
}> {
  const here = await house(calls(marks('one'), marks('two')));
  const { threadId } = await here.asks();
  const ids = (await here.waiting()).map(({ id }) => id);
  expect(ids).toHaveLength(2);
  return { here, threadId, ids };
}

/** Exit code and error code of a command with `--json`. */
async function failure(here: House, args: readonly string[]): Promise<readonly [unknown, unknown]> {
  const { code, stdout, stderr } = await here.cli([...args, '--json']);
  expect(stdout, `${args.join(' ')}: ${stderr}`).not.toBe('');
  const { success, error } = JSON.parse(stdout) as { success: boolean; error?: { code: string } };
  expect(success).toBe(code === 0);
  return [code, error?.code];
}

it('the list has every member that programs need, and show the same request', async () => {
  const here = await house(calls(marks('mark')));
  const { threadId, id } = await here.asks();
  const { approvals, total } = await here.json(['approvals', 'list']);
  expect(total).toBe(1);
  const [request] = approvals as readonly Record<string, unknown>[];
  const stored = await here.row(id);
  expect(request).toMatchObject({
    id,
    thread_id: threadId,
    kind: 'call',
    tool: 'rye/bash',
    input: { command: 'echo ran >> mark' },
    input_sha256: sha256('{"command":"echo ran >> mark"}'),
    request_sha256: stored.request_sha256,
    expires_at: stored.request.expires_at,
    state: 'pending',
    approvers: [{ name: 'owner', key_id: here.key().keyId }],
  });
  const days =
    (Date.parse(stored.request.expires_at) - Date.parse(stored.request.created_at)) / 864e5;
  expect(days).toBe(7);
  expect(await here.json(['approvals'])).toMatchObject({ approvals: [request] });
  expect(await here.json(['approvals', 'show', id.slice(0, 8)])).toMatchObject({
    approval: request,
  });
  const shown = await here.cli(['approvals', 'show', id]);
  for (const part of [id, threadId, 'echo ran >> mark', 'It pushes.', 'owner'])
    expect(shown.stdout).toContain(part);
  const listed = await here.cli(['approvals']);
  for (const part of [id, threadId, 'call', 'rye/bash', 'echo ran >> mark'])
    expect(listed.stdout).toContain(part);
  expect(await here.json(['approvals', '--thread', threadId])).toMatchObject({ total: 1 });
  expect(await here.json(['approvals', '--state', 'denied'])).toMatchObject({ total: 0 });
  expect(await here.json(['approvals', 'verify', id])).toMatchObject({
    success: true,
    outcome: 'pending',
    decisions: [],
  });
});

it('several requests are decided at once; one that fails keeps no other from it', async () => {
  const { here, threadId, ids } = await twoAsked();
  const [one = '', two = ''] = ids;
  const partly = await here.cli(['approve', one, 'apr-nothing', '--no-resume', '--json']);
  expect(partly.code).toBe(6);
  expect(JSON.parse(partly.stdout)).toMatchObject({
    success: false,
    total: 1,
    approvals: [{ id: one, state: 'approved' }],
    problems: [{ id: 'apr-nothing', error: { code: 'approval_not_found' } }],
  });
  await here.json(['deny', two, '--comment', 'Not two.']);
  await here.until(threadId, 'completed');
  expect([here.file('one'), here.file('two')]).toEqual(['ran\n', undefined]);
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('Not two.');
  const both = await twoAsked();
  expect(await both.here.json(['approve', ...both.ids])).toMatchObject({ total: 2 });
  await both.here.until(both.threadId, 'completed');
  expect([both.here.file('one'), both.here.file('two')]).toEqual(['ran\n', 'ran\n']);
});

it('an unknown ID exits with 6, an ambiguous beginning with 2, and a decided request with 4', async () => {
  const { here, ids } = await twoAsked();
  const [one = ''] = ids;
  for (const command of [['approvals', 'show'], ['approvals', 'verify'], ['approve'], ['deny']]) {
    expect(await failure(here, [...command, 'apr-zzz'])).toEqual([6, 'approval_not_found']);
    expect(await failure(here, [...command, ''])).toEqual([6, 'approval_not_found']);
    expect(await failure(here, [...command, 'apr-'])).toEqual([2, 'ambiguous']);
  }
  expect(await failure(here, ['answer', 'apr-zzz', '1'])).toEqual([6, 'approval_not_found']);
  await here.json(['approve', one, '--no-resume']);
  for (const command of [['approve'], ['deny']]) {
    expect(await failure(here, [...command, one])).toEqual([4, 'approval_closed']);
  }
  expect(await here.json(['approvals', 'show', one])).toMatchObject({
    approval: { state: 'approved', decisions: [{ late: false }, { late: true }, { late: true }] },
  });
});

it('an input, a scope or a time that is wrong exits with 2 and decides nothing', async () => {
  const here = await house(calls(marks('mark')));
  const { id } = await here.asks();
  const wrong: readonly (readonly string[])[] = [
    ['--input', '{'],
    ['--input', '[1]'],
    ['--input', 'null'],
    ['--input', '{}'],
    ['--input', '{"command": 5}'],
    ['--input', '{"command": "ls", "also": 1}'],
    ['--scope', 'everything'],
    ['--scope', 'tool', '--until', 'yesterday'],
    ['--scope', 'tool', '--until', '2020-01-01T00:00:00Z'],
    ['--scope', 'tool', '--until', '0h'],
    ['--scope', 'tool', '--uses', '0'],
    ['--scope', 'tool', '--uses', '-1'],
    ['--scope', 'tool', '--uses', 'many'],
    ['--scope', 'tool', '--spend', '-1'],
    ['--uses', '2'],
  ];
  for (const options of wrong) {
    const { code, stdout, stderr } = await here.cli(['approve', id, ...options, '--json']);
    expect(code, `${options.join(' ')}\n${stdout}${stderr}`).toBe(2);
  }
  for (const args of [['approve'], ['deny'], ['answer', id]]) {
    expect((await here.cli(args)).code, args.join(' ')).toBe(2);
  }
  expect(await failure(here, ['answer', id, '1'])).toEqual([4, 'approval_invalid']);
  expect((await here.row(id)).decisions).toEqual([]);
});

it('a changed input is validated and runs, and the model is told', async () => {
  const here = await house(calls(marks('mark')));
  const { threadId, id } = await here.asks();
  await here.json(['approve', id, '--input', '{"command": "echo other >> other"}']);
  await here.until(threadId, 'completed');
  expect([here.file('mark'), here.file('other')]).toEqual([undefined, 'other\n']);
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('approved this call with another');
  expect(payloads(here.log(threadId), 'tool_call_start')).toMatchObject([
    { input: { command: 'echo other >> other' }, approval: { approval_id: id } },
  ]);
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
});

it('the scope arguments covers the same input, and the scope tool any, as often as --uses allows', async () => {
  const here = await house(
    calls(marks('mark')),
    calls(marks('mark')),
    calls(marks('other')),
    calls(marks('third')),
    calls(marks('fourth')),
  );
  const { threadId, id } = await here.asks();
  await here.json(['approve', id, '--scope', 'arguments', '--no-resume']);
  const second = await here.json(['threads', 'resume', threadId], 8);
  expect([here.file('mark'), here.file('other')]).toEqual(['ran\nran\n', undefined]);
  const [next = ''] = second['approvals'] as readonly string[];
  await here.json(['approve', next, '--scope', 'tool', '--uses', '2', '--no-resume']);
  await here.json(['threads', 'resume', threadId], 8);
  expect([here.file('other'), here.file('third'), here.file('fourth')]).toEqual([
    'ran\n',
    'ran\n',
    undefined,
  ]);
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
});

it('the scope tool covers no other tool, and not the same one after a change', async () => {
  const tool = shellTool('echo ran >> "$RYE_PROJECT/mark"');
  const user = directive('user', {
    permissions:
      '<execute><tool ask="true">trial/mark</tool><tool ask="true">rye/bash</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
  });
  const mark = toolUse('trial_mark', {});
  const here = await house(calls(mark), calls(mark), calls(marks('other')));
  here.signed('tools/trial/mark.sh', tool);
  here.signed('directives/user.md', user);
  const { threadId, id } = await here.asks('user');
  await here.json(['approve', id, '--scope', 'tool', '--no-resume']);
  await here.json(['threads', 'resume', threadId], 8);
  expect([here.file('mark'), here.file('other')]).toEqual(['ran\nran\n', undefined]);
  expect(await here.waiting()).toMatchObject([{ tool: 'rye/bash' }]);

  const changing = await house(calls(mark), reply('done'), calls(mark));
  changing.signed('tools/trial/mark.sh', tool);
  changing.signed('directives/user.md', user);
  const asked = await changing.asks('user');
  await changing.json(['approve', asked.id, '--scope', 'tool', '--no-resume']);
  await changing.json(['threads', 'resume', asked.threadId]);
  changing.signed('tools/trial/mark.sh', tool.replace('echo ran', 'echo changed'));
  await changing.json(['threads', 'resume', asked.threadId, '-m', 'Again.'], 8);
  expect(changing.file('mark')).toBe('ran\n');
});

it('a question takes only an answer, and only one that matches its schema', async () => {
  const properties = { branch: { enum: ['main', 'dev'] }, force: { type: 'boolean' } };
  const schema = { type: 'object', properties, required: ['branch'], additionalProperties: false };
  const here = await house(calls(toolUse('rye_agent_ask', { question: 'Where to?', schema })));
  here.signed('directives/asker.md', ASKER);
  const { threadId, id } = await here.asks('asker');
  expect(await here.json(['approvals'])).toMatchObject({
    approvals: [{ id, kind: 'question', tool: 'rye/agent/ask', input: { question: 'Where to?' } }],
  });
  for (const wrong of ['{}', '{"branch": "x"}', '{"branch": "main", "force": "yes"}', '"main"']) {
    expect(await failure(here, ['answer', id, wrong])).toEqual([2, 'invalid_input']);
  }
  await here.json(['answer', id, '{"branch": "main", "force": true}']);
  await here.until(threadId, 'completed');
  const settled = payloads(here.log(threadId), 'approval_decided');
  expect(settled).toMatchObject([
    { outcome: 'answered', decisions: [{ decision: { answer: { branch: 'main', force: true } } }] },
  ]);
});

const ASKER = `# asker

\`\`\`xml
<directive name="asker" version="1.0.0">
  <metadata>
    <description>Asks.</description>
    <category></category>
    <author>lab</author>
    <limits turns="6" spend="0.10" />
    <permissions><execute><tool>rye/agent/ask</tool></execute></permissions>
  </metadata>
</directive>
\`\`\`

Ask.
`;

it('--watch prints what waits and each new request, until it is interrupted', async () => {
  const here = await house(calls(marks('mark')), calls(marks('mark')));
  const first = await here.asks();
  const program = join(await cliPackage(), 'bin/rye.js');
  const child = spawn(process.execPath, [program, 'approvals', '--watch', '--json'], {
    cwd: here.project,
    env: here.env,
  });
  const ended = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const nextId = async (): Promise<unknown> => {
    const { value } = (await lines.next()) as { value: string };
    return (JSON.parse(value) as { id: unknown }).id;
  };
  expect(await nextId()).toBe(first.id);
  const second = await here.asks();
  expect(await nextId()).toBe(second.id);
  child.kill('SIGINT');
  expect(await ended).toEqual([0, null]);
});
