import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import {
  calls,
  reply,
  startWireServer,
  toolUse,
  type WireScript,
  type WireTurn,
} from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const RETURN = 'rye_directive_return';

/** Writes and signs a directive with these parts of its metadata and these elements after it. */
async function directive(
  { project, rye }: Workspace,
  name: string,
  parts: { readonly metadata?: string; readonly elements?: string },
): Promise<void> {
  const file = path.join(project, '.ai', 'directives', `${name}.md`);
  mkdirSync(path.dirname(file), { recursive: true });
  const text = [
    '```xml',
    `<directive name="${name}" version="1.0.0">`,
    '<metadata><description>d</description><category></category><author>a</author>',
    parts.metadata ?? '',
    '</metadata>',
    parts.elements ?? '',
    '</directive>',
    '```',
    '',
    'Do it.',
    '',
  ].join('\n');
  writeFileSync(file, text);
  const signed = await rye(['sign', 'directive', name]);
  expect(signed.stderr).not.toMatch(/error/i);
}

async function serve(script: WireScript) {
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  return { server, env: { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url } };
}

interface Result {
  readonly success: boolean;
  readonly status: string;
  readonly thread_id: string;
  readonly outputs?: unknown;
  readonly error?: { readonly code: string; readonly message: string };
  readonly cost: Readonly<Record<string, number>>;
  readonly paths: Readonly<Record<string, string>>;
}

const BLOCKED = { status: 'error', error_detail: 'the release branch is locked' };
const REQUIRED = { elements: '<outputs><output name="url" required="true"/></outputs>' };

test('a directive that returns an error ends as error with the detail, without its outputs', async () => {
  const here = await workspace();
  const hooks = [
    '<hooks>',
    '<hook id="seen_return" event="directive_return"><emit custom_type="seen_return"><state>${status}</state><detail>${error_detail}</detail></emit></hook>',
    '<hook id="seen_end" event="after_complete"><emit custom_type="seen_end"><code>${error.code}</code><detail>${error.message}</detail></emit></hook>',
    '</hooks>',
  ].join('');
  await directive(here, 'ship', { metadata: hooks, ...REQUIRED });
  const { server, env } = await serve([calls(toolUse(RETURN, BLOCKED))]);
  const ran = await here.rye(['run', 'ship', '--json'], { env });
  const result = JSON.parse(ran.stdout) as Result;
  expect(ran.code).toBe(1);
  expect(result).toMatchObject({
    success: false,
    status: 'error',
    error: { code: 'directive_error', message: 'the release branch is locked' },
    cost: { turns: 1 },
  });
  expect(result.outputs).toBeUndefined();
  expect(server.requests).toHaveLength(1);

  const log = readFileSync(String(result.paths['transcript']), 'utf8');
  const custom = log
    .split('\n')
    .filter((line) => line.includes('"event_type":"custom"'))
    .map((line) => (JSON.parse(line) as { payload: object }).payload);
  expect(custom).toContainEqual({
    custom_type: 'seen_return',
    data: { state: 'error', detail: BLOCKED.error_detail },
  });
  expect(custom).toContainEqual({
    custom_type: 'seen_end',
    data: { code: 'directive_error', detail: BLOCKED.error_detail },
  });
  expect(readFileSync(String(result.paths['knowledge']), 'utf8')).toContain(BLOCKED.error_detail);
  const shown = await here.rye(['threads', 'show', result.thread_id]);
  expect(shown.stdout).toContain(BLOCKED.error_detail);
  const verified = await here.rye(['verify', 'thread', result.thread_id]);
  expect(verified.code).toBe(0);
});

test('an error that is returned reaches a person on stderr with a hint', async () => {
  const here = await workspace();
  await directive(here, 'ship', REQUIRED);
  const { env } = await serve([calls(toolUse(RETURN, BLOCKED))]);
  const { code, stderr } = await here.rye(['run', 'ship'], { env });
  expect(code).toBe(1);
  expect(stderr).toContain('[directive_error]');
  expect(stderr).toContain('the release branch is locked');
  expect(stderr).toContain('Resolve what the model reports');
});

const EXECUTED = {
  item_type: 'tool',
  item_id: 'rye/agent/threads/directive_return',
  parameters: BLOCKED,
};

test.each<[string, string, WireTurn, object]>([
  ['has no outputs', '', calls(toolUse(RETURN, BLOCKED)), BLOCKED],
  [
    'returns through rye_execute',
    REQUIRED.elements,
    calls(toolUse('rye_execute', EXECUTED)),
    BLOCKED,
  ],
  [
    'had another call of the answer fail',
    REQUIRED.elements,
    calls(toolUse('no_such_tool', {}), toolUse(RETURN, BLOCKED)),
    BLOCKED,
  ],
  [
    'gives no detail',
    REQUIRED.elements,
    calls(toolUse(RETURN, { status: 'error' })),
    { error_detail: 'the model returned an error and gave no error_detail' },
  ],
  [
    'declares an output of the name status',
    '<outputs><output name="status" required="true"/><output name="x" required="true"/></outputs>',
    calls(toolUse(RETURN, BLOCKED)),
    BLOCKED,
  ],
])('a returned error ends the thread when the directive %s', async (_, elements, turn, detail) => {
  const here = await workspace();
  await directive(here, 'ship', { elements });
  const { env, server } = await serve([turn]);
  const result = (await here.json(['run', 'ship'], { env })) as unknown as Result;
  expect(result).toMatchObject({
    status: 'error',
    error: { code: 'directive_error', message: (detail as typeof BLOCKED).error_detail },
  });
  expect(server.requests).toHaveLength(1);
});

test('a declared output of the name status may have the value error', async () => {
  const here = await workspace();
  const elements = '<outputs><output name="status" required="true"/></outputs>';
  await directive(here, 'probe', { elements });
  const { env } = await serve([calls(toolUse(RETURN, { status: 'error' }))]);
  const result = (await here.json(['run', 'probe'], { env })) as unknown as Result;
  expect(result).toMatchObject({ status: 'completed', outputs: { status: 'error' } });
});

test('a parent reads the returned error of its child in the result of the call', async () => {
  const here = await workspace();
  await directive(here, 'kid', REQUIRED);
  const permissions = '<permissions><execute><directive>kid</directive></execute></permissions>';
  await directive(here, 'par', { metadata: permissions });
  const { env, server } = await serve([
    calls(toolUse('rye_execute', { item_type: 'directive', item_id: 'kid', parameters: {} })),
    calls(toolUse(RETURN, BLOCKED)),
    reply('My child is blocked.'),
  ]);
  const result = (await here.json(['run', 'par'], { env })) as unknown as Result;
  expect(result).toMatchObject({ status: 'completed' });
  const told = JSON.stringify(server.requests[2]?.body.messages.at(-1));
  expect(told).toContain('directive_error');
  expect(told).toContain(BLOCKED.error_detail);
});

test('an error hook that retries sends the model back, and a second return may succeed', async () => {
  const here = await workspace();
  const condition = '<condition path="source" op="eq" value="directive"/>';
  const hook = `<hook id="again" event="error">${condition}<control>retry</control></hook>`;
  await directive(here, 'ship', { metadata: `<hooks>${hook}</hooks>`, ...REQUIRED });
  const { env, server } = await serve([
    calls(toolUse(RETURN, BLOCKED, 'a')),
    calls(toolUse(RETURN, { url: 'https://example.org' }, 'b')),
  ]);
  const result = (await here.json(['run', 'ship'], { env })) as unknown as Result;
  expect(result).toMatchObject({ status: 'completed', outputs: { url: 'https://example.org' } });
  expect(server.requests).toHaveLength(2);
});

test('a literal step that returns an error ends the thread with its detail', async () => {
  const here = await workspace();
  await directive(here, 'steps', {
    elements: [
      '<outputs><output name="url" required="true"/></outputs>',
      '<process><step name="stop"><execute item_type="tool" item_id="rye/agent/threads/directive_return">',
      '<param name="status">error</param><param name="error_detail">no network here</param>',
      '</execute></step></process>',
    ].join(''),
  });
  const result = (await here.json(['run', 'steps'])) as unknown as Result;
  expect(result).toMatchObject({
    status: 'error',
    error: { code: 'directive_error', message: 'no network here' },
  });
});
