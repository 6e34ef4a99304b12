import { expect, it } from 'vitest';
import { depth } from '../helpers/sample-of.ts';
import { edit, type UndoDesk, undoDesk, write } from './undo-desk.ts';

/** A small generator of numbers, so that a failing sequence can be repeated. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return (state >>> 8) % below;
  };
}

type Files = ReadonlyMap<string, string>;

/** The files that should be there, and those when each entry was written. */
class Model {
  files = new Map<string, string>();
  readonly moments = new Map<string, Files>();
  readonly original: Files;

  constructor(original: Files) {
    this.original = original;
    this.files = new Map(original);
  }
}

const NAMES = ['a.txt', 'b.txt', 'sub/c.txt', 'sub/deep/d.txt'];

function onDisk(desk: UndoDesk): Files {
  return new Map(
    NAMES.flatMap((name) => {
      const content = desk.get(name);
      return content === null ? [] : [[name, content] as const];
    }),
  );
}

/** Lets the thread change files in some answers, one call each, and notes the state at each result. */
async function change(
  desk: UndoDesk,
  model: Model,
  next: (below: number) => number,
  id: string | undefined,
): Promise<string> {
  const turns = [];
  const states: Files[] = [];
  for (let count = 1 + next(3); count > 0; count -= 1) {
    const name = NAMES[next(NAMES.length)] ?? '';
    const content = `${next(1000)}\n`;
    const old = model.files.get(name);
    turns.push([
      old === undefined || next(2) === 0 ? write(name, content) : edit(name, old, content),
    ]);
    model.files.set(name, content);
    states.push(new Map(model.files));
  }
  const known = new Set(id === undefined ? [] : await desk.entries(id, 'tool_result'));
  let thread = id;
  if (thread === undefined) thread = await desk.run(...turns);
  else await desk.resume(thread, 'More.', ...turns);
  const results = (await desk.entries(thread, 'tool_result')).filter((one) => !known.has(one));
  expect(results).toHaveLength(states.length);
  // entries are drawn branch by branch: the order in the log decides
  const ordered = await inOrder(desk, thread, results);
  for (const [index, entry] of ordered.entries()) {
    model.moments.set(entry, states[index] ?? new Map());
  }
  return thread;
}

async function inOrder(
  desk: UndoDesk,
  id: string,
  entries: readonly string[],
): Promise<readonly string[]> {
  const { rows } = await desk.lab.rye().trees.view(id, { filter: 'all' });
  const seqs = new Map(rows.map(({ entry }) => [entry.id, entry.seq]));
  return entries.toSorted((a, b) => (seqs.get(a) ?? 0) - (seqs.get(b) ?? 0));
}

it.each(depth([1], [1, 2, 3, 4]))(
  'random edits, branches and undos leave the files of a naive model (seed %i)',
  async (seed) => {
    const next = random(seed);
    const desk = await undoDesk();
    desk.put('a.txt', 'original\n');
    const model = new Model(onDisk(desk));
    const id = await change(desk, model, next, undefined);
    for (let step = 0; step < 10; step += 1) {
      const moments = [...model.moments];
      const [entry, files] = moments[next(moments.length)] ?? ['', model.original];
      const action = next(4);
      if (action === 0) {
        await change(desk, model, next, id);
      } else if (action === 1) {
        await desk.undo(id, { to: entry });
        model.files = new Map(files);
      } else if (action === 2) {
        await desk.undo(id);
        model.files = new Map(model.original);
      } else {
        await desk.lab.rye().trees.branch(id, { at: entry });
        if (next(2) === 0) {
          await desk.undo(id, { to: entry });
          model.files = new Map(files);
        }
        await change(desk, model, next, id);
      }
      expect([step, onDisk(desk)]).toEqual([step, model.files]);
    }
    expect((await desk.lab.rye().threads.verify(id)).ok).toBe(true);
    await desk.undo(id);
    expect(onDisk(desk)).toEqual(model.original);
    expect([desk.has('sub'), (await desk.undo(id)).files]).toEqual([false, []]);
  },
  120_000,
);
