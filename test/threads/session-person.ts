import { readFileSync } from 'node:fs';
import { expect } from 'vitest';
import type { Lab } from '../attacks/lab.ts';
import type { WireTurn } from '../helpers/wire-server.ts';
import { NaiveThread, type Node } from './naive-session.ts';
import { finalTurn, MODELS, numbers, workTurn, writeSession } from './session-desk.ts';
import { codeOf, type Expected, type History } from './session-history.ts';

/** A person who does random things to threads. */
export class Person {
  readonly #history: History;
  readonly #random: () => number;
  readonly #lab: Lab;
  #count = 0;

  constructor(history: History, lab: Lab, seed: number) {
    this.#history = history;
    this.#lab = lab;
    this.#random = numbers(seed);
  }

  readonly pick = <T>(all: readonly T[]): T | undefined =>
    all[Math.floor(this.#random() * all.length)];

  #chance(part: number): boolean {
    return this.#random() < part;
  }

  #next(): number {
    this.#count += 1;
    return this.#count;
  }

  #entry(thread: NaiveThread): Node {
    const all = [...thread.nodes.values()];
    const spoken = all.filter(({ said }) => said.kind !== 'aside');
    const node = this.pick(this.#chance(0.8) && spoken.length > 0 ? spoken : all);
    if (!node) throw new Error('the thread is empty');
    return node;
  }

  #script(hasTools: boolean): { readonly turns: WireTurn[]; readonly said: string[] } {
    const turns: WireTurn[] = [];
    const said: string[] = [];
    const works = hasTools ? Math.floor(this.#random() * 3) : 0;
    for (let at = 0; at < works; at += 1) {
      const n = this.#next();
      const kinds = this.pick([['mark'], ['write'], ['mark', 'write'], ['mark', 'mark']]) ?? [];
      turns.push(workTurn(this.#history.name, n, kinds));
      said.push(`Work ${n}.`);
    }
    const n = this.#next();
    return { turns: [...turns, finalTurn(n)], said: [...said, `Answer ${n}.`] };
  }

  /** Does one thing, or dies while doing it, and compares. */
  async act(): Promise<void> {
    const history = this.#history;
    const thread = this.pick(history.threads);
    if (!thread) return await this.start();
    const acts = [
      ...Array.from({ length: 5 }, () => this.resume),
      ...Array.from({ length: 4 }, () => this.branch),
      this.label,
      this.thinking,
      this.changeModel,
      this.compact,
      this.compact,
      this.fork,
      this.cancel,
      this.importSession,
    ];
    // a process that died early left no entry to act on
    const act = thread.nodes.size === 0 ? this.resume : this.pick(acts);
    await act?.call(this, thread);
  }

  /** Runs an operation that may die. Returns its refusal, `dead`, or undefined. */
  async #attempt(
    name: string,
    work: () => Promise<unknown>,
    mayDie = true,
  ): Promise<string | undefined> {
    const history = this.#history;
    const { process } = history;
    const dies = mayDie && this.#chance(0.2);
    const steps = 1 + Math.floor(this.#random() * 60);
    const isAfter = this.#chance(0.5);
    history.done.push(dies ? `${name} (dies at ${steps}${isAfter ? ' after' : ''})` : name);
    if (dies) process.arm(steps, isAfter);
    const outcome = await Promise.race([
      process.death,
      work().then(
        () => undefined,
        (error: unknown) => (process.disarm() ? 'dead' : codeOf(error)),
      ),
    ]);
    if (!process.disarm()) return outcome;
    history.done.push('  died');
    history.reopen();
    const { failures } = await history.rye.recovery.recover();
    expect(failures).toEqual([]);
    return 'dead';
  }

  async start(): Promise<void> {
    const history = this.#history;
    const { turns, said } = this.#script(true);
    const thread = new NaiveThread(`${history.name}-${this.#next()}`);
    history.desk.turns = turns;
    const asked = history.asked;
    const outcome = await this.#attempt(`start ${thread.id}`, async () =>
      history.rye.threads.execute({
        directiveId: 'work',
        threadId: thread.id,
        provider: 'anthropic',
        model: MODELS[0] ?? '',
      }),
    );
    if (outcome === 'dead' && !history.bytes(thread.id)) return;
    history.threads.push(thread);
    await this.#settleRun(thread, asked, { said: [/Do the work\./, ...said] }, outcome);
  }

  async #settleRun(
    thread: NaiveThread,
    asked: number,
    expected: Expected,
    outcome?: string,
  ): Promise<void> {
    const isCut = expected.isCut ?? outcome === 'dead';
    await this.#history.settle(thread, asked, { ...expected, isRun: true, isCut });
  }

  async resume(thread: NaiveThread): Promise<void> {
    const history = this.#history;
    const { turns, said } = this.#script(thread.hasTools);
    const message = this.#chance(0.5) ? `say ${this.#next()}` : undefined;
    const from = thread.nodes.size > 0 && this.#chance(0.25) ? this.#entry(thread) : undefined;
    const grant = this.#chance(0.15) ? 1 + Math.floor(this.#random() * 2) : undefined;
    const limit = history.json(thread.id).limits.turns;
    const left = grant ?? limit - thread.turns;
    history.desk.turns = turns;
    history.from = from?.id;
    const before = history.bytes(thread.id);
    const asked = history.asked;
    const opening = this.#opening(thread, message, from);
    const outcome = await this.#attempt(
      `resume ${thread.id} from=${from?.id ?? ''} message=${message ?? ''} turns=${grant ?? ''}`,
      async () =>
        history.rye.recovery.resume({
          threadId: thread.id,
          ...(message === undefined ? {} : { message }),
          ...(from ? { from: from.id } : {}),
          ...(grant === undefined
            ? {}
            : { limits: { turns: grant, spend: 10 }, raiseLimits: true }),
        }),
    );
    if (outcome !== undefined && outcome !== 'dead') {
      const code = left <= 0 ? 'limit_turns' : 'a refusal without a reason';
      expect([outcome, history.bytes(thread.id) === before]).toEqual([code, true]);
      history.from = undefined;
      return;
    }
    await this.#settleRun(thread, asked, { said: [...opening, ...said.slice(0, left)] }, outcome);
    if (outcome === undefined) {
      expect(thread.status).toBe(said.length > left ? 'error' : 'completed');
    }
  }

  /** Returns the message with which a resume begins. */
  #opening(
    thread: NaiveThread,
    message: string | undefined,
    from: Node | undefined,
  ): (string | RegExp)[] {
    if (message !== undefined) return [message];
    const last = thread.context(from ?? thread.head).at(-1) ?? '';
    const isMoved = thread.isMoved || from !== undefined;
    const isSeeded = last.startsWith('assistant ') || (thread.status !== 'suspended' && !isMoved);
    if (isSeeded) return [/^This thread continues/];
    const first = [...thread.nodes.values()].find((one) => one.said.kind === 'user');
    if (thread.context(from ?? thread.head).length > 0) return [];
    return [first?.said.kind === 'user' ? first.said.text : /^This thread continues/];
  }

  async cancel(thread: NaiveThread): Promise<void> {
    const history = this.#history;
    const limit = history.json(thread.id).limits.turns;
    if (limit <= thread.turns) return;
    const controller = new AbortController();
    let open = (): void => undefined;
    const until = new Promise<void>((resolve) => {
      open = resolve;
    });
    history.desk.turns = [
      {
        steps: [
          { kind: 'text', chunks: ['Part'] },
          { kind: 'wait', until },
        ],
        usage: { input_tokens: 10 },
      },
    ];
    history.desk.onAsked = () => setImmediate(() => controller.abort('enough'));
    const message = `stop ${this.#next()}`;
    const asked = history.asked;
    const outcome = await this.#attempt(`cancel ${thread.id}`, async () =>
      history.rye.recovery.resume({ threadId: thread.id, message, signal: controller.signal }),
    );
    open();
    history.desk.onAsked = () => undefined;
    const said = [message, 'Part'];
    await this.#settleRun(
      thread,
      asked,
      { said: said.map((one) => (one === 'Part' ? /^(Part)?$/ : one)), isCut: true },
      outcome,
    );
    if (outcome === undefined) expect(thread.status).toBe('cancelled');
  }

  /** Makes an edit, which writes everything expected, or nothing if it is refused or dies. */
  async #edit(
    thread: NaiveThread,
    name: string,
    work: () => Promise<unknown>,
    {
      said,
      refusals = [],
      mayDoNothing = false,
    }: {
      readonly said: Expected['said'];
      readonly refusals?: readonly string[];
      readonly mayDoNothing?: boolean;
    },
  ): Promise<boolean> {
    const history = this.#history;
    const before = history.bytes(thread.id);
    const asked = history.asked;
    const outcome = await this.#attempt(name, work);
    if (outcome !== undefined && outcome !== 'dead') {
      expect([outcome, history.bytes(thread.id) === before]).toEqual([
        expect.toSatisfy((code) => refusals.includes(code)),
        true,
      ]);
      return false;
    }
    const wrote = history.bytes(thread.id) !== before;
    const isNothing = mayDoNothing && !wrote && history.asked === asked;
    await history.settle(thread, asked, {
      said: isNothing ? [] : said,
      isCut: outcome === 'dead',
    });
    return wrote;
  }

  async branch(thread: NaiveThread): Promise<void> {
    const history = this.#history;
    const isRoot = this.#chance(0.2);
    const target = this.#entry(thread);
    const at = isRoot ? 'root' : target.id;
    const message = this.#chance(0.3) ? `ask ${this.#next()}` : undefined;
    const how = this.#random();
    const summary =
      how < 0.2 ? ('model' as const) : how < 0.4 ? { text: `left ${this.#next()}` } : undefined;
    const said: (string | RegExp)[] = [];
    if (summary === 'model') said.push(/^SUM \d+/);
    else if (summary) said.push(summary.text);
    const first = thread.path().find((one) => one.type === 'message' && one.said.kind === 'user');
    if (message !== undefined) said.push(message);
    else if (isRoot && first?.said.kind === 'user') said.push(first.said.text);
    const before = thread.nodes.size;
    const isDone = await this.#edit(
      thread,
      `branch ${thread.id} at=${at} message=${message ?? ''} summary=${JSON.stringify(summary) ?? ''}`,
      async () =>
        history.rye.trees.branch(thread.id, {
          at,
          ...(message === undefined ? {} : { message }),
          ...(summary === undefined ? {} : { summary }),
        }),
      { said, refusals: summary === 'model' ? ['usage'] : [] },
    );
    if (!isDone) return;
    const added = [...thread.nodes.values()].slice(before);
    thread.isMoved = added.length > 0;
    if (isRoot || added[0]?.type !== 'leaf') return;
    expect(thread.path()).toContain(target);
  }

  async label(thread: NaiveThread): Promise<void> {
    const target = this.#entry(thread);
    const label = this.#chance(0.8) ? `label ${this.#next()}` : null;
    const { rye } = this.#history;
    await this.#edit(
      thread,
      `label ${thread.id} ${target.id} ${label}`,
      async () => rye.trees.label(thread.id, target.id, label),
      { said: [] },
    );
    const view = await this.#history.rye.trees.view(thread.id, { filter: 'all' });
    const labels = view.rows.map(({ entry, label: text }) => [entry.id, text] as const);
    const named = labels.filter(([, text]) => text !== undefined);
    expect(new Map(named)).toEqual(thread.labels);
  }

  async thinking(thread: NaiveThread): Promise<void> {
    const level = this.pick(['off', 'low', 'medium', 'high']) ?? 'off';
    const { rye } = this.#history;
    const isDone = await this.#edit(
      thread,
      `thinking ${thread.id} ${level}`,
      async () => rye.trees.changeThinking(thread.id, level),
      { said: [] },
    );
    if (isDone) expect(thread.levelAt()).toBe(level);
  }

  async changeModel(thread: NaiveThread): Promise<void> {
    const model = this.pick(MODELS) ?? '';
    const { rye } = this.#history;
    const isDone = await this.#edit(
      thread,
      `model ${thread.id} ${model}`,
      async () => rye.trees.changeModel(thread.id, { model, provider: 'anthropic' }),
      { said: [] },
    );
    if (isDone) expect(thread.modelAt()).toBe(model);
  }

  async compact(thread: NaiveThread): Promise<void> {
    const { rye } = this.#history;
    const before = thread.head;
    const isDone = await this.#edit(
      thread,
      `compact ${thread.id}`,
      async () => await rye.trees.compact(thread.id),
      { said: [/^SUM \d+/], mayDoNothing: true },
    );
    if (!isDone || thread.head?.said.kind !== 'summary') return;
    const kept = thread.node(thread.head.said.keepFrom);
    expect(thread.path(before)).toContain(kept);
    expect(kept.said.kind).not.toBe('result');
  }

  async fork(source: NaiveThread): Promise<void> {
    const history = this.#history;
    const at = this.#entry(source);
    const before = history.bytes(source.id);
    const fork = new NaiveThread(`${history.name}-${this.#next()}`, source.hasTools);
    const outcome = await this.#attempt(`fork ${source.id} at=${at.id} as ${fork.id}`, async () =>
      history.rye.trees.extract(source.id, { at: at.id, threadId: fork.id }),
    );
    expect(history.bytes(source.id)).toBe(before);
    if (outcome === 'dead') return;
    expect(outcome).toBeUndefined();
    history.threads.push(fork);
    this.#adoptAll(fork);
    const wanted = source.context(at);
    const first = source.path().find((one) => one.type === 'message' && one.said.kind === 'user');
    const opening = first?.said.kind === 'user' ? [`user ${first.said.text}`] : [];
    expect(fork.context()).toEqual(wanted.length > 0 ? wanted : opening);
    await history.compareThread(fork, false);
    expect([fork.status, fork.spent]).toEqual(['suspended', 0]);
  }

  #adoptAll(thread: NaiveThread): void {
    for (const line of this.#history.news(thread)) if (line.id) thread.adopt(line);
  }

  async importSession(): Promise<void> {
    const history = this.#history;
    const name = `${history.name}-${this.#next()}`;
    const turns = 1 + Math.floor(this.#random() * 3);
    const path = writeSession(this.#lab, name, turns);
    const thread = new NaiveThread(name, false);
    const outcome = await this.#attempt(`import ${name}`, async () =>
      history.rye.trees.importSession({ path, threadId: name }),
    );
    if (outcome === 'dead') return;
    expect(outcome).toBeUndefined();
    history.threads.push(thread);
    this.#adoptAll(thread);
    const texts = Array.from({ length: turns }, (_, at) => [
      `user question ${at}`,
      `assistant reply ${at}`,
    ]);
    expect(thread.context()).toEqual(texts.flat());
    await history.compareThread(thread, false);
    const { chunks } = await history.rye.exports.export(name, { format: 'pi' });
    const parse = (text: string) =>
      text
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { readonly type: string })
        .filter(({ type }) => type === 'message');
    expect(parse([...chunks].join(''))).toEqual(parse(readFileSync(path, 'utf8')));
  }
}
