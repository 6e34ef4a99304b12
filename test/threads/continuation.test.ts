import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import {
  calls,
  reply,
  startWireServer,
  toolUse,
  type WireScript,
  type WireServer,
} from '../helpers/wire-server.ts';
import { directive, type Lab, lab } from './lab.ts';

/** A window that is full after every turn. */
const HANDS_OFF = 'continuation: { mode: handoff, trigger_threshold: 0.0001 }\n';

const USAGE = { input_tokens: 1000, output_tokens: 100 };

/** Keeps a thread's topic in a file and reads it again. */
const NOTES = `import { appendFileSync, existsSync, readFileSync } from 'node:fs';
export const __version__ = '1.0.0';
export const __tool_description__ = 'Keep notes.';
export const __traits__ = { reads_only: false, idempotent: true, network: false, timeout_seconds: 60, risk: 'safe' };
export const CONFIG_SCHEMA = {
  type: 'object',
  properties: { thread: { type: 'string' }, save: { type: 'string' }, about: { type: 'string' } },
  required: ['thread'],
  additionalProperties: false,
};
const { thread, save, about } = JSON.parse(readFileSync(0, 'utf8'));
const file = 'notes-' + thread.replace('/', '-');
if (save !== undefined) appendFileSync(file, save);
else process.stdout.write('NOTES ' + about + ': ' + (existsSync(file) ? readFileSync(file, 'utf8') : 'none'));
`;

const run = (id: string, params: Readonly<Record<string, string>>): string =>
  `<action primary="execute" item_type="tool" item_id="${id}">${Object.entries(params)
    .map(([name, value]) => `<param name="${name}">${value}</param>`)
    .join('')}</action>`;

/** The directive's own hooks summarize a thread that ends, and remind its continuation. */
const SUMMARY_HOOKS = `<hooks>
  <hook id="summarise" event="after_complete">${run('team/notes', {
    thread: '${thread_id}',
    save: '${cost.turns} turns, ${status}',
  })}</hook>
  <hook id="remind" event="thread_continued" position="before" wrap="false">${run('team/notes', {
    thread: '${previous_thread_id}',
    about: '${directive} for ${inputs.who}, ${limits.turns} turns left',
  })}</hook>
</hooks>`;

interface Relay {
  readonly here: Lab;
  readonly rye: Rye;
  readonly server: WireServer;
}

async function relay(script: WireScript): Promise<Relay> {
  const here = await lab({ coordination: HANDS_OFF });
  here.write('.ai/tools/team/notes.mjs', NOTES);
  here.write(
    '.ai/directives/team/relay.md',
    directive('team/relay', {
      limits: 'turns="9" spend="1" spawns="5" depth="3"',
      tools: ['team/notes', 'team/gate', 'rye/agent/threads/orchestrator'],
      inputs: '<input name="who" type="string" default="Ada">Whom it is for.</input>',
      hooks: SUMMARY_HOOKS,
      steps: '',
    }),
  );
  await here.sign();
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  const rye = here.open({
    env: {
      PATH: process.env['PATH'],
      HOME: here.home,
      ANTHROPIC_API_KEY: 'sk-ant-test',
      ANTHROPIC_BASE_URL: server.url,
    },
  });
  return { here, rye, server };
}

const lastMessage = ({ requests }: WireServer, index: number): string =>
  JSON.stringify(requests[index]?.body.messages.at(-1));

test('the summary hooks of a thread that hands off have run before the hooks of its successor', async () => {
  let asked = 0;
  const { here, rye, server } = await relay(() => {
    asked += 1;
    if (asked > 2) return reply('Done.', USAGE);
    return {
      ...calls(toolUse('team_notes', { thread: 'own', save: `step ${asked} ` })),
      usage: USAGE,
    };
  });
  const result = await rye.threads.execute({ directiveId: 'team/relay', threadId: 'r' });
  expect(result).toMatchObject({ success: true, status: 'continued', result: 'Done.' });
  const { chain } = await rye.threads.show('r');
  expect(chain.map(({ status }) => status)).toEqual(['continued', 'continued', 'completed']);
  const ids = chain.map(({ thread_id }) => thread_id);
  // what the hook of the thread before left is what the hook of the next one reads, and the model is told
  expect(lastMessage(server, 1)).toContain(
    'NOTES team/relay for Ada, 8 turns left: 1 turns, continued',
  );
  expect(lastMessage(server, 2)).toContain(
    'NOTES team/relay for Ada, 7 turns left: 1 turns, continued',
  );
  expect(lastMessage(server, 2)).toContain(`This thread continues \`${ids[1]}\``);
  expect(readFileSync(path.join(here.project, `notes-${ids[2]?.replace('/', '-')}`), 'utf8')).toBe(
    '1 turns, completed',
  );
  // the chain has done each step once
  expect(readFileSync(path.join(here.project, 'notes-own'), 'utf8')).toBe('step 1 step 2 ');
});

test('a cancel that comes before a handoff ends the chain there', async () => {
  const { here, rye, server } = await relay(async () => {
    await here.store.registry.requestCancel('r', 'enough', new Date().toISOString());
    return { ...calls(toolUse('team_notes', { thread: 'own', save: 'x' })), usage: USAGE };
  });
  const result = await rye.threads.execute({ directiveId: 'team/relay', threadId: 'r' });
  expect(result).toMatchObject({
    status: 'cancelled',
    error: { message: 'the thread was cancelled: enough' },
  });
  expect((await rye.threads.show('r')).chain).toHaveLength(1);
  expect(server.requests).toHaveLength(1);
});

test('a successor waits for the children of the thread that it continues; a cancel finds the end of the chain', async () => {
  const { here, rye } = await relay((request) => {
    const text = JSON.stringify(request.body.messages);
    const input = { item_type: 'tool', item_id: 'team/gate', async: true };
    if (!text.includes('rye_execute'))
      return {
        ...calls(toolUse('rye_execute', { ...input, parameters: { name: 'kid' } })),
        usage: USAGE,
      };
    return {
      ...calls(toolUse('rye_agent_threads_orchestrator', { operation: 'wait_threads' })),
      usage: USAGE,
    };
  });
  const running = rye.threads.execute({ directiveId: 'team/relay', threadId: 'r' });
  await here.until('the child', () => existsSync(path.join(here.project, 'arrived-kid')));
  await here.until('the successor', async () => {
    const { chain } = await rye.threads.show('r');
    const last = chain.at(-1)?.thread_id ?? '';
    const { events } = await here.store.logs.read(last).catch(() => ({ events: [] }));
    return chain.length === 2 && events.some(({ event_type }) => event_type === 'tool_call_start');
  });
  const { chain } = await rye.threads.show('r');
  const [kid] = await here.store.registry.list({ parentId: 'r', order: 'oldest first' });
  const cancelled = await here.rye.children.cancel('r', { reason: 'enough' });
  expect(cancelled).toEqual([chain[1]?.thread_id, kid?.thread_id]);
  expect(await running).toMatchObject({
    success: false,
    error: { message: expect.stringContaining('enough') },
  });
  const report = await here.rye.children.wait(['r', kid?.thread_id ?? '']);
  expect(report.threads.map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
  expect((await here.store.ledger.rows()).map(({ status }) => status)).toEqual(
    Array.from({ length: 3 }, () => 'released'),
  );
});
