import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { textOutput } from '../../src/kernel/tools/tool.ts';
import { runs } from '../helpers/runs.ts';
import { answers, play, resultText, type ScriptedTool, toolOf } from './scripted.ts';

const KINDS = {
  read: { reads_only: true },
  change: { reads_only: false },
  child: { reads_only: false, parallel: true },
  alone: { reads_only: true, sequential: true },
} as const;
type Kind = keyof typeof KINDS;
const isFree = (kind: Kind) => kind === 'read' || kind === 'child';

interface Seen {
  /** Calls that had ended when it began. */
  readonly ended: readonly number[];
  /** Calls that ran when it began. */
  readonly running: readonly number[];
}

/** Runs the calls of one answer, each for some ticks. */
async function batch(calls: readonly { readonly kind: Kind; readonly ticks: number }[]) {
  const ended: number[] = [];
  const running: number[] = [];
  const seen: Seen[] = [];
  const run: ScriptedTool['run'] = async (_input, { callId }) => {
    const index = Number(callId.slice(1));
    seen[index] = { ended: [...ended], running: [...running] };
    running.push(index);
    const { ticks = 0 } = calls[index] ?? {};
    for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve();
    running.splice(running.indexOf(index), 1);
    ended.push(index);
    return textOutput(callId);
  };
  const kinds = Object.keys(KINDS) as Kind[];
  await play({
    tools: Object.fromEntries(
      kinds.map((kind) => [`rye_${kind}`, toolOf(`rye/${kind}`, { traits: KINDS[kind], run })]),
    ),
    turns: [
      answers(
        '',
        calls.map(({ kind }, index) => ({ id: `c${index}`, name: `rye_${kind}` })),
      ),
      answers('Done.'),
    ],
  });
  return seen;
}

it('a call sees all that the calls before it changed, and nothing of those after it', async () => {
  const call = fc.record({
    kind: fc.constantFrom<Kind>('read', 'change', 'child', 'alone'),
    ticks: fc.integer({ min: 0, max: 30 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(call, { minLength: 1, maxLength: 10 }), async (calls) => {
      const seen = await batch(calls);
      for (const [index, { kind }] of calls.entries()) {
        const { ended = [], running = [] } = seen[index] ?? {};
        const before = calls.flatMap((other, at) =>
          at < index && !(isFree(kind) && isFree(other.kind)) ? [at] : [],
        );
        expect(ended).toEqual(expect.arrayContaining(before));
        const besides = running.map((at) => calls[at]?.kind);
        expect(isFree(kind) || besides.length === 0).toBe(true);
        expect(besides.every((other) => other && isFree(other))).toBe(true);
      }
    }),
    runs(100),
  );
});

it('reading calls and children run side by side', async () => {
  const seen = await batch([
    { kind: 'read', ticks: 20 },
    { kind: 'child', ticks: 20 },
    { kind: 'read', ticks: 20 },
  ]);
  expect(seen.map(({ running }) => running.length)).toEqual([0, 1, 2]);
});

it('an earlier result is not given again after a change of the same answer', async () => {
  let value = 1;
  const tools = {
    rye_echo: toolOf('rye/echo', { run: () => Promise.resolve(textOutput(`value ${value}`)) }),
    rye_write: toolOf('rye/write', {
      traits: { reads_only: false },
      run: () => {
        value += 1;
        return Promise.resolve(textOutput('written'));
      },
    }),
  };
  const call = (id: string, name: string) => ({ id, name });
  const { events } = await play({
    plan: { behavior: { dedup_tools: 'rye_echo' } },
    tools,
    turns: [
      answers('', [call('a', 'rye_echo')]),
      answers('', [call('b', 'rye_echo'), call('w', 'rye_write'), call('c', 'rye_echo')]),
      answers('Done.'),
    ],
  });
  expect(['a', 'b', 'c'].map((id) => resultText(events, id))).toEqual([
    'value 1',
    'value 1',
    'value 2',
  ]);
});
