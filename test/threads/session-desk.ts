import { writeFileSync } from 'node:fs';
import path from 'node:path';
import type { BudgetRow } from '../../src/kernel/policy/budget.ts';
import type { Lab } from '../attacks/lab.ts';
import type { WireRequest, WireStep, WireTurn } from '../helpers/wire-server.ts';

/** Micro-dollars per token of input and of output. */
const PRICES: Readonly<Record<string, readonly [number, number]>> = {
  'claude-haiku-5-5': [0.1, 0.5],
  'claude-sonnet-5': [2, 10],
};
export const MODELS = Object.keys(PRICES);
const USAGE = { input_tokens: 1000, output_tokens: 100 };

/** Returns whether a request asks for a summary. */
export function isSummary({ body }: WireRequest): boolean {
  return JSON.stringify(body.system ?? '').includes('You summarize');
}

/** Returns the price of an answer in micro-dollars. */
export function priceOf({ body }: WireRequest): number {
  const [input, output] = PRICES[body.model] ?? [0, 0];
  return Math.round(USAGE.input_tokens * input + USAGE.output_tokens * output);
}

/** The model of a lab: it gives the turns that the history under way has prepared. */
export class Desk {
  turns: WireTurn[] = [];
  onAsked: () => void = () => undefined;
  /** The budgets that were active when a request came. */
  readonly budgets = new WeakMap<WireRequest, readonly BudgetRow[]>();
  readonly #active: () => Promise<readonly BudgetRow[]>;
  #summaries = 0;

  constructor(active: () => Promise<readonly BudgetRow[]>) {
    this.#active = active;
  }

  async answer(request: WireRequest): Promise<WireTurn> {
    this.budgets.set(request, await this.#active());
    if (isSummary(request)) {
      this.#summaries += 1;
      return { steps: [{ kind: 'text', chunks: [`SUM ${this.#summaries}`] }], usage: USAGE };
    }
    this.onAsked();
    const turn = this.turns.shift();
    return turn ?? { status: 400, error: { type: 'invalid_request_error', message: 'no turn' } };
  }
}

/** Writes a session of pi with `turns` questions and answers. */
export function writeSession(lab: Lab, name: string, turns: number): string {
  const file = path.join(lab.project, `${name}.jsonl`);
  const lines: object[] = [
    { type: 'session', version: 3, id: name, timestamp: '2026-01-01T00:00:00.000Z', cwd: '/w' },
  ];
  for (let at = 0; at < turns; at += 1) {
    const parentId = at === 0 ? null : `a${at - 1}`;
    const timestamp = `2026-01-01T00:00:0${at}.000Z`;
    const question = { role: 'user', content: `question ${at}`, timestamp: 1000 + at };
    const answer = {
      role: 'assistant',
      content: [{ type: 'text', text: `reply ${at}` }],
      api: 'anthropic-messages',
      provider: 'anthropic',
      model: MODELS[0],
      usage: {
        input: 10 + at,
        output: 5,
        cacheRead: 0,
        cacheWrite: 0,
        totalTokens: 15 + at,
        cost: { input: 0.1, output: 0.2, cacheRead: 0, cacheWrite: 0, total: 0.3 },
      },
      stopReason: 'stop',
      timestamp: 2000 + at,
    };
    lines.push({ type: 'message', id: `q${at}`, parentId, timestamp, message: question });
    lines.push({ type: 'message', id: `a${at}`, parentId: `q${at}`, timestamp, message: answer });
  }
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return file;
}

/** A turn of the model that calls tools, with names that no other turn has. */
export function workTurn(history: string, n: number, kinds: readonly string[]): WireTurn {
  const steps: WireStep[] = kinds.map((kind, at) => {
    const id = `c_${history}_${n}_${at}`;
    const input =
      kind === 'mark'
        ? { mark: `m${n}.${at}`, history }
        : { path: `out/${history}/f${n}-${at}.txt`, content: `content ${n} ${at}` };
    const name = kind === 'mark' ? 'lab_mark' : 'rye_file_system_write';
    const json = JSON.stringify(input);
    return { kind: 'tool', name, chunks: [json.slice(0, 5), json.slice(5)], id };
  });
  return { steps: [{ kind: 'text', chunks: [`Work ${n}.`] }, ...steps], usage: USAGE };
}

export function finalTurn(n: number): WireTurn {
  return { steps: [{ kind: 'text', chunks: [`Answer ${n}.`] }], usage: USAGE };
}

/** Mulberry32: the same numbers for the same seed. */
export function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
