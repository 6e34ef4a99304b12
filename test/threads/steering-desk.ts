import { mkdirSync, mkdtempSync, realpathSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import type { DeliveryReport } from '../../src/kernel/core/delivery.ts';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { openRye } from '../../src/open-rye.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import {
  calls,
  startWireServer,
  toolUse,
  type WireRequest,
  type WireServer,
  type WireTurn,
} from '../helpers/wire-server.ts';

export const THREAD = 'team/watch-1';

/** A project in this process whose model is a script: the test writes while the model speaks. */
export interface Desk {
  readonly rye: Rye;
  readonly store: Store;
  readonly project: string;
  readonly server: WireServer;
  /** Starts `team/watch`, or another directive; resolves when it is over. */
  run(options?: RunOptions): Promise<ThreadResult>;
  /** A message from another thread, which is registered for that. */
  fromThread(text: string, to?: string): Promise<number>;
  deliveries(threadId?: string): Promise<readonly DeliveryReport[]>;
  one(threadId?: string): Promise<DeliveryReport>;
  events(threadId?: string): Promise<readonly (LogEvent | UnknownEvent)[]>;
  /** Text of the last user message of each request. */
  lastHeard(): readonly string[];
}

export interface RunOptions {
  readonly threadId?: string;
  readonly directiveId?: string;
  readonly signal?: AbortSignal;
  readonly turns?: number;
  readonly onEvent?: (event: LogEvent | UnknownEvent) => void;
}

export interface DeskOptions {
  readonly coordination?: string;
  readonly tools?: readonly string[];
  readonly outputs?: string;
  readonly hooks?: string;
  readonly behavior?: string;
  /** Stream rules of the project, by name. */
  readonly rules?: Readonly<Record<string, string>>;
}

/** The model's step at each request; a function may act first. */
export type Script = readonly (
  | WireTurn
  | ((desk: Desk, request: WireRequest) => Promise<WireTurn>)
)[];

/** A call of a tool that only reads. */
export const LOOK: WireTurn = calls(toolUse('rye_file_system_ls', { path: '.' }));

export async function desk(script: Script, options: DeskOptions = {}): Promise<Desk> {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-desk-')));
  const project = path.join(root, 'project');
  const home = path.join(root, 'home');
  mkdirSync(project);
  mkdirSync(home);
  const server = await startWireServer(async (request) => {
    const turn = script[request.index];
    if (turn === undefined) return { status: 400, error: { type: 'exhausted', message: 'no' } };
    return typeof turn === 'function' ? await turn(made, request) : turn;
  });
  const rye = openRye({
    projectPath: project,
    userSpacePath: home,
    env: { HOME: home, ANTHROPIC_API_KEY: 'sk-ant-test', ANTHROPIC_BASE_URL: server.url },
  });
  const store = openStore({ projectPath: project, clock: systemClock, ids: systemIds });
  onTestFinished(async () => {
    rye.close();
    store.close();
    await server.close();
    removeFolder(root);
  });
  await rye.init();
  const write = (file: string, text: string): void => {
    mkdirSync(path.dirname(path.join(project, file)), { recursive: true });
    writeFileSync(path.join(project, file), text);
  };
  write('.ai/directives/team/watch.md', watch(options));
  if (options.coordination !== undefined)
    write('.ai/config/agent/coordination.yaml', options.coordination);
  for (const [name, text] of Object.entries(options.rules ?? {}))
    write(`.ai/rules/${name}.md`, text);
  for (const type of ['directive', ...(options.rules ? ['rule' as const] : [])] as const) {
    for (const { status, problems } of await rye.items.sign(type, '*')) {
      if (status === 'failed') throw new Error(JSON.stringify(problems));
    }
  }
  if (options.coordination !== undefined) await rye.items.sign('config', 'agent/coordination');
  const made: Desk = {
    rye,
    store,
    project,
    server,
    run: async ({ threadId = THREAD, directiveId = 'team/watch', signal, turns, onEvent } = {}) =>
      await rye.threads.execute({
        directiveId,
        threadId,
        ...(signal ? { signal } : {}),
        ...(onEvent ? { onEvent } : {}),
        ...(turns === undefined ? {} : { limits: { turns }, raiseLimits: true }),
      }),
    fromThread: async (text, to = THREAD) => {
      const from = `other-${await nextSeq(store)}`;
      await store.registry.register({
        threadId: from,
        directive: 'other',
        parentId: to,
        model: 'm',
        now: new Date().toISOString(),
        owner: null,
      });
      const { delivery } = await rye.deliveries.send(to, text, { from });
      return delivery.seq;
    },
    deliveries: async (threadId = THREAD) => await rye.deliveries.list(threadId),
    one: async (threadId = THREAD) => {
      const [only, ...more] = await rye.deliveries.list(threadId);
      if (!only || more.length > 0) throw new Error('there is not exactly one delivery');
      return only;
    },
    events: async (threadId = THREAD) => (await store.logs.read(threadId)).events,
    lastHeard: () =>
      server.requests.map(({ body }) => {
        const content = body.messages.at(-1)?.content ?? '';
        return typeof content === 'string' ? content : JSON.stringify(content);
      }),
  };
  return made;
}

/** Runs the desk's thread and cancels it when the message of a delivery is in its log, before any request carries it. */
export async function runUntilTaken(here: Desk): Promise<ThreadResult> {
  const stop = new AbortController();
  return await here.run({
    signal: stop.signal,
    onEvent: ({ event_type: type }) => {
      if (type === 'custom_message') stop.abort('enough');
    },
  });
}

let serial = 0;
async function nextSeq(_store: Store): Promise<number> {
  serial += 1;
  return serial;
}

function watch({
  tools = ['rye/file-system/ls'],
  outputs = '',
  hooks = '',
  behavior = '',
}: DeskOptions): string {
  return `# watch

\`\`\`xml
<directive name="watch" version="1.0.0">
  <metadata>
    <description>Watch.</description>
    <category>team</category>
    <author>test</author>
    <limits turns="12" spend="1.00" spawns="9" />
    <permissions><execute>${tools.map((id) => `<tool>${id}</tool>`).join('')}</execute></permissions>
    ${hooks}
    ${behavior}
  </metadata>
  <inputs></inputs>
  <outputs>${outputs}</outputs>
  <process><step name="look">Look around.</step></process>
</directive>
\`\`\`

Look around.
`;
}

export function decisions({ decisions: all }: DeliveryReport): readonly string[] {
  return all.map(({ decision }) => decision);
}
