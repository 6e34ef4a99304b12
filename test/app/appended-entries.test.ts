import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import type { ImageBlock } from '../../src/kernel/core/message.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { runCli } from '../helpers/run-cli.ts';
import {
  calls,
  reply,
  text,
  toolUse,
  type WireServer,
  type WireTurn,
} from '../helpers/wire-server.ts';

const NOW = '2026-01-02T03:04:05.000Z';
const DOT: ImageBlock = {
  type: 'image',
  media_type: 'image/png',
  data: 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
};

let lab: Lab;
let rye: Rye;
let server: WireServer;
/** Answers of the model, by the number of the request; `Seen.` after the last. */
let answers: readonly WireTurn[];

beforeEach(async () => {
  lab = await openLab();
  answers = [];
  server = await lab.model(({ index }) => answers[index] ?? reply('Seen.'));
  lab.signed(
    'directives/work.md',
    directive('work', {
      permissions: '<execute><tool>rye/file-system/*</tool></execute>',
      limits: 'turns="10" spend="1.00"',
    }),
  );
  rye = lab.rye();
});

afterEach(async () => await lab.remove());

async function finished(): Promise<string> {
  const options = { model: 'claude-haiku-5-5', provider: 'anthropic' };
  return (await lab.run('work', options)).thread_id;
}

async function exported(id: string, format: 'html' | 'jsonl' | 'md' | 'pi', redact = false) {
  return [...(await rye.exports.export(id, { format, redact })).chunks].join('');
}

/** The last request as the model got it. */
function lastRequest(): string {
  return JSON.stringify(server.requests.at(-1)?.body);
}

describe('an image in a custom message', () => {
  it('reaches the model, the page and pi, and no redacted export', async () => {
    const id = await finished();
    await rye.trees.appendCustomMessage(id, {
      customType: 'my-program',
      content: 'A screenshot.',
      images: [DOT],
      display: true,
    });
    await rye.recovery.resume({ threadId: id });
    expect(lastRequest()).toContain(DOT.data);
    expect(lastRequest()).toContain('A screenshot.');
    expect((await rye.trees.context(id)).messages.at(-2)).toEqual({
      role: 'user',
      content: [{ type: 'text', text: 'A screenshot.' }, DOT],
    });
    expect(await exported(id, 'html')).toContain(`src="data:image/png;base64,${DOT.data}"`);
    expect(await exported(id, 'md')).toContain('my-program, 1 image');
    const content = [
      { type: 'text', text: 'A screenshot.' },
      { type: 'image', data: DOT.data, mimeType: 'image/png' },
    ];
    const lines = (await exported(id, 'pi')).trim().split('\n');
    expect(lines.map((line) => JSON.parse(line))).toContainEqual(
      expect.objectContaining({ type: 'custom_message', customType: 'my-program', content }),
    );
    for (const format of ['html', 'jsonl', 'md', 'pi'] as const) {
      expect(await exported(id, format, true)).not.toContain(DOT.data);
    }
    expect((await rye.threads.verify(id)).ok).toBe(true);
  });

  it('is refused where it is no image that a provider reads', async () => {
    const id = await finished();
    const message = { customType: 'my-program', content: '', display: true };
    for (const data of ['', 'aGk=', 'iVBORw0KGgo…']) {
      await expect(
        rye.trees.appendCustomMessage(id, { ...message, images: [{ ...DOT, data }] }),
      ).rejects.toMatchObject({ code: 'invalid_input' });
    }
  });
});

describe('an entry of a program', () => {
  it('is appended to a thread that has ended, whose model sees it', async () => {
    const id = await finished();
    const said = await rye.trees.append(id, { type: 'message', role: 'user', content: 'Why?' });
    expect(said).toEqual({ thread_id: id, entry_id: expect.any(String), state: 'written' });
    await rye.trees.append(id, { type: 'message', role: 'assistant', content: 'Because.' });
    await rye.trees.append(id, { type: 'custom', customType: 'my/state', data: { step: 1 } });
    const turn = await rye.trees.append(
      id,
      { type: 'message', role: 'user', content: 'Look.', images: [DOT] },
      { triggerTurn: true },
    );
    expect(turn.result).toMatchObject({ status: 'completed', result: 'Seen.' });
    const sent = server.requests.at(-1)?.body.messages ?? [];
    expect(JSON.stringify(sent.slice(-3))).toMatch(/Why\?.*Because\..*Look\..*iVBOR/);
    expect(lastRequest()).not.toContain('my/state');
    expect((await rye.threads.verify(id)).ok).toBe(true);
  });

  it('may be a compaction, which cuts no call from its result', async () => {
    answers = [calls(toolUse('rye_file_system_ls', {}, 'toolu_1')), reply('Listed.')];
    const id = await finished();
    const { rows } = await rye.trees.view(id, { filter: 'all' });
    const entryOf = (kind: string) => rows.find((row) => row.kind === kind)?.entry.id ?? '';
    const compaction = { type: 'compaction', summary: 'ALL OF IT' } as const;
    const firstKept = entryOf('tool_result');
    const refused = rye.trees.append(id, { ...compaction, firstKept });
    await expect(refused).rejects.toMatchObject({ code: 'invalid_input' });
    const { details } = (await refused.catch(
      (error: { details: { cut_points: string[] } }) => error,
    )) as {
      details: { cut_points: string[] };
    };
    const [cut = ''] = details.cut_points;
    const { entry_id } = await rye.trees.append(id, { ...compaction, firstKept: cut });
    await rye.recovery.resume({ threadId: id, message: 'Go on.' });
    expect(lastRequest()).toContain('ALL OF IT');
    const entry = await rye.trees.entry(id, entry_id);
    expect(entry.payload).toMatchObject({
      first_kept_entry_id: cut,
      details: { reason: 'program' },
    });
    expect((await rye.threads.verify(id)).ok).toBe(true);
  });

  it('goes into a running thread of another process, in order, and is replayed', async () => {
    const { running, release } = await busy();
    const queued = { thread_id: 'busy', entry_id: expect.any(String), state: 'queued' };
    const texts = ['one', 'two', 'three'];
    for (const content of texts) {
      const entry = { type: 'message', role: 'user', content: `number ${content}` } as const;
      expect(await rye.trees.append('busy', entry)).toEqual(queued);
    }
    const message = { customType: 'my-program', content: 'A hint.', images: [DOT], display: true };
    expect(await rye.trees.appendCustomMessage('busy', message)).toEqual([]);
    expect(await rye.trees.appendCustom('busy', 'my/state', { step: 1 })).toEqual([]);
    const answered = { type: 'message', role: 'assistant', content: 'No.' } as const;
    await expect(rye.trees.append('busy', answered)).rejects.toMatchObject({
      code: 'invalid_input',
    });
    release();
    expect(JSON.parse((await running).stdout)).toMatchObject({ status: 'completed' });
    expect(server.requests).toHaveLength(2);
    expect(lastRequest()).toMatch(/number one.*number two.*number three.*A hint\..*iVBOR/);
    const types = (await rye.trees.path('busy')).map(({ event_type: type }) => type);
    const at = types.indexOf('custom');
    expect(types.slice(at - 4, at + 2)).toEqual([
      ...texts.map(() => 'message'),
      'custom_message',
      'custom',
      'message',
    ]);
    expect((await rye.threads.verify('busy')).ok).toBe(true);
    expect(await rye.trees.replay('busy')).toMatchObject({ difference: null });
  });

  it('that summarizes replaces what a running thread sends, and is replayed', async () => {
    const { running, release } = await busy([
      calls(toolUse('rye_file_system_ls', {}, 'toolu_1')),
      calls(toolUse('rye_file_system_ls', { path: '.ai' }, 'toolu_2')),
    ]);
    const { rows } = await rye.trees.view('busy', { filter: 'all' });
    const result = rows.find(({ kind }) => kind === 'tool_result')?.entry.id ?? '';
    const compaction = { type: 'compaction', summary: 'ALL OF IT' } as const;
    await expect(
      rye.trees.append('busy', { ...compaction, firstKept: result }),
    ).rejects.toMatchObject({ code: 'invalid_input' });
    const first = rows.findLast(({ kind }) => kind === 'assistant')?.entry.id ?? '';
    const kept = { ...compaction, firstKept: first };
    expect(await rye.trees.append('busy', kept)).toMatchObject({ state: 'queued' });
    release();
    expect(JSON.parse((await running).stdout)).toMatchObject({ status: 'completed' });
    expect(server.requests).toHaveLength(4);
    expect(lastRequest()).toContain('ALL OF IT');
    const { messages } = await rye.trees.context('busy');
    expect(JSON.stringify(messages)).toContain('ALL OF IT');
    expect((await rye.threads.verify('busy')).ok).toBe(true);
    expect(await rye.trees.replay('busy')).toMatchObject({ difference: null });
  });

  it('that no model sees prolongs no run', async () => {
    const { running, release } = await busy();
    const last = gate();
    answers = [...answers, { steps: [{ kind: 'wait', until: last.held }, text('Done.')] }];
    release();
    await server.request(1);
    expect(await rye.trees.appendCustom('busy', 'my/state', { step: 1 })).toEqual([]);
    last.release();
    expect(JSON.parse((await running).stdout)).toMatchObject({ result: 'Done.' });
    const path = await rye.trees.path('busy');
    expect(JSON.stringify(path.map(({ payload }) => payload))).toContain('my/state');
    expect(server.requests).toHaveLength(2);
  });

  it('that came too late for the last model call is written at the end of the run', async () => {
    const { running, release } = await busy([], ['--limit', 'turns=1']);
    const entry = { type: 'message', role: 'user', content: 'too late' } as const;
    expect(await rye.trees.append('busy', entry)).toMatchObject({ state: 'queued' });
    release();
    expect(JSON.parse((await running).stdout)).toMatchObject({ error: { code: 'limit_turns' } });
    expect(JSON.stringify((await rye.trees.context('busy')).messages.at(-1))).toContain('too late');
    expect((await rye.threads.verify('busy')).ok).toBe(true);
  });

  it('outlives the process that was to write it, and is written once', async () => {
    const { running, release, pid } = await busy();
    const entry = { type: 'message', role: 'user', content: 'number one' } as const;
    const { entry_id } = await rye.trees.append('busy', entry);
    process.kill(await pid(), 'SIGKILL');
    await running;
    release();
    await rye.recovery.recover({ threadId: 'busy' });
    await rye.recovery.resume({ threadId: 'busy' });
    expect(lastRequest()).toContain('number one');
    // its owner died between the log and the store
    const { store } = new Workspace({
      features: FEATURES,
      projectPath: lab.project,
      userSpacePath: lab.home,
      env: lab.env,
    });
    const draft = JSON.stringify({
      event_type: 'custom',
      payload: { custom_type: 'late', data: {} },
    });
    const late = { threadId: 'busy', draft };
    await store.appends?.add({ ...late, entryId: entry_id }, NOW);
    await store.appends?.add({ ...late, entryId: 'late-1' }, NOW);
    await store.appends?.add({ ...late, entryId: 'odd', draft: '{"event_type":"leaf"}' }, NOW);
    await rye.trees.appendCustom('busy', 'my/state', {});
    const path = await rye.trees.path('busy');
    expect(path.filter(({ id }) => id === entry_id)).toHaveLength(1);
    expect(path.at(-2)?.id).toBe('late-1');
    expect(await store.appends?.list(['busy'])).toEqual([]);
    store.close();
    expect((await rye.threads.verify('busy')).ok).toBe(true);
  });
});

function gate() {
  let open = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { held, release: () => open() };
}

/** Starts a thread in another process; the last of its answers, a call, waits to be released. */
async function busy(before: readonly WireTurn[] = [], options: readonly string[] = []) {
  const { held, release } = gate();
  const call = toolUse('rye_file_system_ls', { path: '.' });
  answers = [...before, calls({ kind: 'wait', until: held }, call)];
  const args = ['run', 'work', '--thread-id', 'busy', '--json'];
  const model = ['--model', 'claude-haiku-5-5', '--provider', 'anthropic'];
  const place = { cwd: lab.project, env: lab.env, spawned: true };
  const running = runCli([...args, ...model, ...options], place);
  await server.request(before.length);
  const pid = async () => (await rye.threads.list())[0]?.pid ?? 0;
  return { running, release, pid };
}
