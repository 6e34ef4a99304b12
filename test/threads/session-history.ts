import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import type { LibraryTool } from '../../src/kernel/app/presets.ts';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { type Message, textOf } from '../../src/kernel/core/message.ts';
import { toMicroUsd } from '../../src/kernel/core/usage.ts';
import type { Lab } from '../attacks/lab.ts';
import type { WireBody, WireRequest, WireServer } from '../helpers/wire-server.ts';
import { type Mortal, openMortal } from './mortal-store.ts';
import { type Line, type NaiveThread, type Node, plain } from './naive-session.ts';
import { type Desk, isSummary, MODELS, priceOf } from './session-desk.ts';

/** The expected effect of an operation. */
export interface Expected {
  /** New texts for the model that are no results, in order; a function judges one. */
  readonly said: readonly (string | RegExp)[];
  /** The operation runs the thread: requests are compared, and a run is counted. */
  readonly isRun?: boolean;
  /** The run may stop within an answer. */
  readonly isCut?: boolean;
}

/** A random sequence of operations on real threads, and the naive model of each. */
export class History {
  readonly threads: NaiveThread[] = [];
  readonly done: string[] = [];
  readonly #lab: Lab;
  readonly #server: WireServer;
  readonly desk: Desk;
  readonly #graves: Mortal[] = [];
  readonly #wires = new Map<string, string>();
  readonly name: string;
  process: Mortal;
  rye: Rye;

  constructor(lab: Lab, server: WireServer, desk: Desk, name: string) {
    this.#lab = lab;
    this.#server = server;
    this.desk = desk;
    this.name = name;
    [this.process, this.rye] = this.#open();
  }

  #open(): [Mortal, Rye] {
    const mortal = openMortal(this.#lab.project);
    const rye = this.#lab.rye({
      store: mortal.store,
      tools: { 'lab/mark': markTool(this.#lab.project) },
      preset: { behavior: { nudge: false } },
      configOverrides: ['coordination.compaction.keep_recent_tokens=10'],
    });
    return [mortal, rye];
  }

  /** The next process, as after a death. */
  reopen(): void {
    this.#graves.push(this.process);
    [this.process, this.rye] = this.#open();
  }

  async end(): Promise<void> {
    for (const mortal of [...this.#graves, this.process]) await mortal.bury();
  }

  file(thread: string, name = 'transcript.jsonl'): string {
    return path.join(this.#lab.project, '.ai/state/threads', thread, name);
  }

  bytes(thread: string): string {
    const file = this.file(thread);
    return existsSync(file) ? readFileSync(file, 'utf8') : '';
  }

  json(thread: string): Document {
    return JSON.parse(readFileSync(this.file(thread, 'thread.json'), 'utf8')) as Document;
  }

  /** Everything on the wire since a request. */
  requests(since: number): readonly WireRequest[] {
    return this.#server.requests.slice(since);
  }

  get asked(): number {
    return this.#server.requests.length;
  }

  /** Signed lines of a log that were not read yet: what follows them after a death is moved out by the next writer. */
  news(thread: NaiveThread): readonly Line[] {
    const lines = this.bytes(thread.id).split('\n').slice(0, -1);
    const parsed = lines.map((line) => JSON.parse(line) as Line);
    const end = 1 + parsed.findLastIndex(({ event_type }) => event_type === 'checkpoint');
    const fresh = parsed.slice(thread.lines, end);
    thread.lines = end;
    return fresh;
  }

  /** Adopts what an operation wrote and compares it, and all that it can have touched, with the model. */
  async settle(thread: NaiveThread, asked: number, expected: Expected): Promise<void> {
    const fresh = this.#adopt(thread);
    this.#compareSaid(fresh, expected);
    if (expected.isRun) this.#compareWire(thread, fresh, asked);
    this.#compareBudgets(thread, asked, expected);
    if (!expected.isCut) {
      for (const request of this.requests(asked)) thread.spent += priceOf(request);
    }
    const isInexact = expected.isCut ?? false;
    const wasInDebt = thread.isInDebt;
    if (!isInexact && fresh.length > 0) thread.isInDebt = false;
    if (isInexact) thread.isInDebt = !expected.isRun;
    await this.compareThread(thread, isInexact || wasInDebt);
    if (expected.isRun && !isInexact) await this.#compareEnd(thread);
  }

  #adopt(thread: NaiveThread): readonly Node[] {
    const fresh: Node[] = [];
    for (const line of this.news(thread)) {
      const { event_type: type, payload } = line;
      if (type === 'run_started') {
        expect(payload?.['from_entry']).toBe(this.fromOf(thread));
        thread.runs += 1;
        thread.isMoved = false;
      }
      if (type === 'thread_finished') thread.isMoved = false;
      if (line.id === undefined) continue;
      const node = thread.adopt(line);
      fresh.push(node);
    }
    this.from = undefined;
    return fresh;
  }

  /** The entry that a resume names, while it runs. */
  from: string | undefined;

  fromOf(thread: NaiveThread): string | null {
    return this.from ?? thread.head?.id ?? null;
  }

  #compareSaid(fresh: readonly Node[], { said, isCut }: Expected): void {
    const spoke = fresh.flatMap((node) => {
      if (node.said.kind === 'aside' || node.said.kind === 'result') return [];
      return [node.said.text];
    });
    const wanted = isCut ? said.slice(0, spoke.length) : said;
    expect(spoke).toEqual(
      wanted.map((one) => (typeof one === 'string' ? one : expect.stringMatching(one))),
    );
  }

  #compareWire(thread: NaiveThread, fresh: readonly Node[], asked: number): void {
    const answers = fresh.filter(({ said }) => said.kind === 'answer');
    const sent = this.requests(asked).filter((request) => !isSummary(request));
    for (const [at, answer] of answers.entries()) {
      const body = sent[at]?.body;
      if (!body) throw new Error(`nothing was asked for answer ${at}`);
      expect(blocksOf(body)).toEqual(thread.context(answer.parent));
      expect(body.model).toBe(thread.modelAt(answer.parent) ?? MODELS[0]);
      const { system = '', tools = [] } = body;
      this.#constant(`${thread.id} system`, system);
      this.#constant(
        `${thread.id} tools`,
        tools.map(({ cache_control: _mark, ...tool }) => tool),
      );
      const level = thread.levelAt(answer.parent) ?? 'none';
      this.#constant(`${body.model} ${level}`, [body.thinking, body.output_config]);
    }
  }

  /** During a run the thread holds exactly its limit and what it has spent; an edit holds nothing. */
  #compareBudgets(thread: NaiveThread, asked: number, { isRun, isCut }: Expected): void {
    const max = toMicroUsd(this.json(thread.id).limits.spend);
    let { spent } = thread;
    for (const request of this.requests(asked)) {
      const held = this.desk.budgets
        .get(request)
        ?.map((row) => [row.thread_id, row.max, row.actual]);
      const actual = thread.isInDebt ? expect.any(Number) : spent;
      spent += priceOf(request);
      // the request of a process that died may come after its recovery
      if (isCut && held?.length === 0) continue;
      expect(held).toEqual(isRun ? [[thread.id, max, actual]] : []);
    }
  }

  /** Compares a value that must be the same each time. */
  #constant(key: string, value: unknown): void {
    const text = JSON.stringify(value);
    const known = this.#wires.get(key) ?? text;
    this.#wires.set(key, known);
    expect([key, text]).toEqual([key, known]);
  }

  /** Compares one thread's contexts, costs, records and signatures with the model. */
  async compareThread(thread: NaiveThread, isInexact: boolean): Promise<void> {
    const { id } = thread;
    const { store } = this.process;
    const { checks } = await this.rye.threads.verify(id);
    expect(checks.filter(({ ok }) => !ok)).toEqual([]);
    expect((await this.contextOf(id)).join('\n')).toBe(thread.context().join('\n'));
    const record = await store.registry.get(id);
    const [row] = await store.ledger.rows({ thread_id: id });
    const document = this.json(id);
    const spend = toMicroUsd(record?.cost.spend ?? 0);
    expect(spend).toBeGreaterThanOrEqual(thread.spent);
    if (!isInexact) expect(spend).toBe(thread.spent);
    const booked = toMicroUsd(document.cost?.spend ?? 0);
    const sums = [row?.status, row?.actual, booked];
    expect(sums).toEqual(
      thread.isInDebt ? ['released', ...sums.slice(1)] : ['released', spend, spend],
    );
    thread.spent = spend;
    thread.turns = record?.cost.turns ?? 0;
    thread.status = record?.status ?? 'none';
    expect([document.status, await store.ledger.rows({ status: 'active' })]).toEqual([
      thread.status,
      [],
    ]);
    this.#compareRuns(thread, document);
  }

  /** After a run, thread.json names the whole log, and the budget is the limit. */
  async #compareEnd({ id }: NaiveThread): Promise<void> {
    const { transcript, limits } = this.json(id);
    expect(transcript?.bytes).toBe(Buffer.byteLength(this.bytes(id)));
    const [row] = await this.process.store.ledger.rows({ thread_id: id });
    expect(row?.max).toBe(toMicroUsd(limits.spend));
  }

  #compareRuns(thread: NaiveThread, { runs, cost }: Document): void {
    if (!runs) {
      expect(thread.runs).toBeLessThanOrEqual(1);
      return;
    }
    expect(runs.map(({ run }) => run)).toEqual(runs.map((_, index) => index + 1));
    expect(runs.length).toBe(thread.runs);
    const sum = runs.reduce((all, run) => all + toMicroUsd(run.cost.spend), 0);
    expect(sum).toBeLessThanOrEqual(toMicroUsd(cost?.spend ?? 0));
    for (const { status, finished_at: finished } of runs) {
      expect([status, typeof finished]).toEqual([
        expect.stringMatching(/^(completed|error|cancelled|suspended)$/),
        'string',
      ]);
    }
  }

  async contextOf(id: string, entry?: string): Promise<readonly string[]> {
    const { messages } = await this.rye.trees.context(id, entry);
    return messages.flatMap(linesOf);
  }

  /** The other branches are as they were, and each effect happened as often as the logs tell. */
  async compareRest(pick: <T>(all: readonly T[]) => T | undefined): Promise<void> {
    for (const thread of this.threads) {
      const node = pick([...thread.nodes.values()]);
      if (node) {
        expect([node.id, await this.contextOf(thread.id, node.id)]).toEqual([
          node.id,
          thread.context(node),
        ]);
      }
    }
    this.#compareFiles();
  }

  #compareFiles(): void {
    const calls = new Map<string, { readonly input: unknown; isDone: boolean }>();
    for (const thread of this.threads) {
      for (const { said } of thread.nodes.values()) {
        if (said.kind !== 'answer') continue;
        for (const { id, input } of said.calls) {
          const outcome = thread.outcome(id);
          const isDone = outcome !== undefined && !outcome.isRecovered;
          calls.set(id, { input, isDone: isDone || (calls.get(id)?.isDone ?? false) });
        }
      }
    }
    const folder = path.join(this.#lab.project, 'out', this.name);
    const files = existsSync(folder) ? readdirSync(folder) : [];
    const marks = files.includes('marks')
      ? readFileSync(path.join(folder, 'marks'), 'utf8').split('\n')
      : [];
    const known = new Set(['marks']);
    for (const [id, { input, isDone }] of calls) {
      const { path: file, content, mark } = input as Record<string, string | undefined>;
      if (mark !== undefined) {
        const count = marks.filter((line) => line === mark).length;
        expect([id, mark, count]).toEqual([id, mark, isDone ? 1 : expect.toSatisfy((n) => n <= 1)]);
      } else if (file !== undefined) {
        const name = path.basename(file);
        known.add(name);
        const text = files.includes(name) ? readFileSync(path.join(folder, name), 'utf8') : '';
        expect([id, text]).toEqual([id, isDone || text !== '' ? content : '']);
      }
    }
    expect(files.filter((name) => !known.has(name))).toEqual([]);
  }
}

interface Document {
  readonly status: string;
  readonly transcript?: { readonly bytes: number };
  readonly limits: { readonly turns: number; readonly spend: number };
  readonly cost?: { readonly spend: number; readonly turns: number };
  readonly runs?: readonly {
    readonly run: number;
    readonly status: string;
    readonly finished_at?: string;
    readonly cost: { readonly spend: number };
  }[];
}

/** A tool whose effect shows how often it ran. */
function markTool(project: string): LibraryTool {
  return {
    description: 'Leave a mark.',
    inputSchema: {
      type: 'object',
      properties: { mark: { type: 'string' }, history: { type: 'string' } },
      required: ['mark', 'history'],
    },
    traits: { risk: 'safe', network: false },
    execute: (input) => {
      const { mark = '', history = '' } = input as Record<string, string>;
      const folder = path.join(project, 'out', history);
      mkdirSync(folder, { recursive: true });
      appendFileSync(path.join(folder, 'marks'), `${mark}\n`);
      return `marked ${mark}`;
    },
  };
}

function linesOf(message: Message): readonly string[] {
  const text = plain(textOf(message.content));
  if (message.role === 'tool_result') return [`result ${message.call_id} ${text}`];
  const calls = message.content.flatMap((block) =>
    block.type === 'tool_call'
      ? [`call ${block.call_id} ${block.name} ${JSON.stringify(block.input)}`]
      : [],
  );
  return [...(text === '' ? [] : [`${message.role} ${text}`]), ...calls];
}

/** The blocks of a request, one line each. */
function blocksOf({ messages }: WireBody): readonly string[] {
  return messages.flatMap(({ role, content }) => {
    if (typeof content === 'string') return [`${role} ${plain(content)}`];
    return content.map((block) => {
      if (block.type === 'tool_use') {
        return `call ${block.id} ${block.name} ${JSON.stringify(block.input)}`;
      }
      if (block.type !== 'tool_result') return `${role} ${plain(block.text ?? '')}`;
      const inner = typeof block.content === 'string' ? block.content : undefined;
      const text =
        inner ??
        (block.content as readonly { text?: string }[] | undefined)
          ?.map((one) => one.text ?? '')
          .join('');
      return `result ${block.tool_use_id} ${text ?? ''}`;
    });
  });
}

/** The code of a refusal; anything else is thrown on. */
export function codeOf(error: unknown): string {
  if (error instanceof RyeError) return error.code;
  throw error;
}
