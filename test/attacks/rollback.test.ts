import {
  cpSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ThreadVerification } from '../../src/kernel/app/api/threads.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { text, toolUse } from '../helpers/wire-server.ts';
import { openMortal } from '../threads/mortal-store.ts';
import { attacks, directive, harmless, inLab, type Lab, shellTool } from './lab.ts';

const FOLDER = 'state/threads';
const EXPORTS = 'knowledge/agent/threads/hello';

async function runHello(lab: Lab, threadId: string): Promise<void> {
  await lab.run('hello', { threadId, inputs: { who: threadId } });
}

/** The first check that fails, as `name: code`. */
function firstFailure({ checks }: ThreadVerification): string {
  const failed = checks.find(({ ok }) => !ok);
  return failed === undefined ? 'ok' : `${failed.name}: ${failed.error?.code}`;
}

async function verdict(lab: Lab, threadId = 'a'): Promise<string> {
  return firstFailure(await lab.rye().threads.verify(threadId));
}

/** Copies a file or folder below `.ai`, to put it back later. */
function snapshot(lab: Lab, name: string): () => void {
  const kept = join(lab.home, `kept-${name.replaceAll('/', '-')}`);
  cpSync(lab.path(name), kept, { recursive: true });
  return () => {
    removeFolder(lab.path(name));
    cpSync(kept, lab.path(name), { recursive: true });
    // the lease of a run that was in progress during the copy
    rmSync(lab.path(`${FOLDER}/a/lease.json`), { force: true });
  };
}

function flip(path: string, bit: number): void {
  const bytes = readFileSync(path);
  const at = Math.floor(bit / 8);
  bytes[at] = (bytes[at] ?? 0) ^ (1 << (bit % 8));
  writeFileSync(path, bytes);
}

interface Part {
  readonly name: string;
  readonly expected: string;
  readonly change: (lab: Lab) => void;
}

const PARTS: readonly Part[] = [
  { name: 'nothing', expected: 'ok', change: () => undefined },
  {
    name: 'a bit of its plan',
    expected: 'plan: thread_tampered',
    change: (lab) => flip(lab.path(`${FOLDER}/a/plan.json`), 1000),
  },
  {
    name: 'the plan of another thread in its place',
    expected: 'plan: thread_tampered',
    change: (lab) => cpSync(lab.path(`${FOLDER}/b/plan.json`), lab.path(`${FOLDER}/a/plan.json`)),
  },
  {
    name: 'no plan',
    expected: 'plan: file_not_found',
    change: (lab) => rmSync(lab.path(`${FOLDER}/a/plan.json`)),
  },
  {
    name: 'the capabilities of another thread',
    expected: 'capabilities: item_moved',
    change: (lab) =>
      cpSync(lab.path(`${FOLDER}/b/capabilities.md`), lab.path(`${FOLDER}/a/capabilities.md`)),
  },
  {
    name: 'no capabilities',
    expected: 'capabilities: part_missing',
    change: (lab) => rmSync(lab.path(`${FOLDER}/a/capabilities.md`)),
  },
  {
    name: 'the export of another thread',
    expected: 'knowledge: item_moved',
    change: (lab) => cpSync(lab.path(`${EXPORTS}/b.md`), lab.path(`${EXPORTS}/a.md`)),
  },
  {
    name: 'an older export of the thread',
    expected: 'knowledge: part_outdated',
    change: (lab) => {
      const path = lab.path(`${EXPORTS}/a.md`);
      const content = readFileSync(path, 'utf8').replace(/^<!--.*\n/, '');
      lab.signed(`${EXPORTS}/a.md`, `${content}More.\n`);
    },
  },
  {
    name: 'no export',
    expected: 'knowledge: part_missing',
    change: (lab) => rmSync(lab.path(`${EXPORTS}/a.md`)),
  },
];

describe('Verifying a thread', () => {
  // Requirement: foreign-parts-found
  it('finds each part that is changed, missing or another thread’s', async () => {
    await inLab(async (lab) => {
      await runHello(lab, 'a');
      await runHello(lab, 'b');
      for (const { name, expected, change } of PARTS) {
        const restore = [snapshot(lab, `${FOLDER}/a`), snapshot(lab, EXPORTS)];
        change(lab);
        expect(await verdict(lab), name).toBe(expected);
        for (const back of restore) back();
      }
      expect(await verdict(lab)).toBe('ok');
    });
  });

  // Requirement: bit-flips-found
  it('finds 300 single bits that flip anywhere in its files', async () => {
    await inLab(async (lab) => {
      await runHello(lab, 'a');
      const files = ['thread.json', 'plan.json', 'capabilities.md', 'transcript.jsonl']
        .map((name) => lab.path(`${FOLDER}/a/${name}`))
        .concat(lab.path(`${EXPORTS}/a.md`));
      const rye = lab.rye();
      const missed: string[] = [];
      for (const path of files) {
        const bits = statSync(path).size * 8;
        for (let trial = 0; trial < 60; trial += 1) {
          const bit = Math.floor((bits * (trial + 0.5)) / 60) + (trial % 8);
          if (bit >= bits) continue;
          flip(path, bit);
          if ((await rye.threads.verify('a')).ok) missed.push(`${path} bit ${bit}`);
          flip(path, bit);
        }
      }
      expect(missed).toEqual([]);
      expect(await verdict(lab)).toBe('ok');
    });
  });

  it('finds an artifact that was changed or removed, and names files that are none of the thread’s', async () => {
    await inLab(async (lab) => {
      lab.signed('tools/demo/big.sh', shellTool('seq 60000'));
      const permissions = '<execute><tool>demo/big</tool></execute>';
      lab.signed('directives/long.md', directive('long', { permissions }));
      await lab.model([{ steps: [toolUse('demo_big', {})] }, { steps: [text('Done.')] }]);
      await lab.run('long', { threadId: 'a' });
      const folder = lab.path(`${FOLDER}/a/artifacts`);
      expect(await verdict(lab)).toBe('ok');
      const [name = ''] = existsSync(folder) ? readdirSync(folder) : [];
      expect(name).not.toBe('');
      flip(join(folder, name), 800);
      expect(await verdict(lab)).toBe('artifacts: thread_tampered');
      flip(join(folder, name), 800);
      renameSync(join(folder, name), join(folder, 'other.txt'));
      expect(await verdict(lab)).toBe('artifacts: part_missing');
      renameSync(join(folder, 'other.txt'), join(folder, name));
      lab.write(`${FOLDER}/a/notes.txt`, 'x');
      const { ok, warnings } = await lab.rye().threads.verify('a');
      expect([ok, ...warnings]).toEqual([
        true,
        expect.stringMatching(/notes\.txt does not belong to this thread$/),
      ]);
    });
  });

  it('needs no registry, and reports what it did not compare', async () => {
    await inLab(async (lab) => {
      await runHello(lab, 'a');
      for (const suffix of ['', '-wal', '-shm'])
        rmSync(lab.path(`${FOLDER}/registry.db${suffix}`), { force: true });
      const rye = lab.rye();
      const { ok, warnings } = await rye.threads.verify(await rye.threads.resolveId('a'));
      expect([ok, warnings]).toEqual([true, ['not compared: registry missing']]);
      expect(existsSync(lab.path(`${FOLDER}/registry.db`))).toBe(false);
    });
  });
});

/** Runs a thread and returns a function that restores its folder, or all state, from the middle of the run. */
async function runThenRollBack(lab: Lab, what: string): Promise<() => void> {
  let back: (() => void) | undefined;
  await lab.run('hello', {
    threadId: 'a',
    inputs: { who: 'Ada' },
    onEvent: ({ event_type: type }) => {
      if (type === 'tool_settled') back ??= snapshot(lab, what);
    },
  });
  if (back === undefined) throw new Error('the run called no tool');
  return back;
}

describe('A finished thread whose folder is of the middle of its run', () => {
  attacks([
    {
      name: 'does not verify',
      code: 'thread_rolled_back',
      run: async (lab) => {
        (await runThenRollBack(lab, `${FOLDER}/a`))();
        const { checks } = await lab.rye().threads.verify('a');
        return checks.find(({ ok }) => !ok)?.error?.code;
      },
    },
    {
      // Requirement: rollback-refused
      name: 'is not resumed',
      code: 'thread_rolled_back',
      run: async (lab) => {
        (await runThenRollBack(lab, `${FOLDER}/a`))();
        await lab.rye().recovery.resume({ threadId: 'a', message: 'Continue.' });
      },
    },
    {
      name: 'is not branched or labeled',
      code: 'thread_rolled_back',
      run: async (lab) => {
        (await runThenRollBack(lab, `${FOLDER}/a`))();
        const rye = lab.rye();
        const [entry] = (await rye.trees.view('a')).rows;
        await rye.trees.label('a', entry?.entry.id ?? '', 'x');
      },
    },
    {
      // Requirement: full-rollback-refused
      name: 'does not verify even if all of the state is as old',
      code: 'thread_rolled_back',
      run: async (lab) => {
        (await runThenRollBack(lab, 'state'))();
        const { checks } = await lab.rye().threads.verify('a');
        return checks.find(({ ok }) => !ok)?.error?.code;
      },
    },
    {
      name: 'does not verify with a log that ends before its last label',
      code: 'thread_rolled_back',
      run: async (lab) => {
        await runHello(lab, 'a');
        const back = snapshot(lab, 'state');
        const rye = lab.rye();
        const [entry] = (await rye.trees.view('a')).rows;
        await rye.trees.label('a', entry?.entry.id ?? '', 'x');
        rye.close();
        back();
        const { checks } = await lab.rye().threads.verify('a');
        return checks.find(({ ok }) => !ok)?.error?.code;
      },
    },
  ]);
  attacks([
    {
      name: 'is not continued by a recovery, which finds all of the state as it was before',
      code: 'thread_rolled_back',
      run: async (lab) => {
        const dead = openMortal(lab.project);
        let back = (): void => undefined;
        await lab.rye({ store: dead.store }).threads.execute({
          directiveId: 'hello',
          threadId: 'a',
          inputs: { who: 'Ada' },
          onEvent: ({ event_type: type }) => {
            if (type === 'tool_settled') back = snapshot(lab, 'state');
          },
        });
        await dead.bury();
        back();
        await lab.rye().recovery.recover();
        return (await lab.rye().threads.show('a')).thread.error?.code;
      },
    },
  ]);
  harmless([
    {
      name: 'is used again once a person accepted it',
      expected: ['head: thread_rolled_back', 'ok', 'ok', 'accepted by hand', 'completed'],
      run: async (lab) => {
        await runHello(lab, 'a');
        const back = snapshot(lab, `${FOLDER}/a`);
        const [entry] = (await lab.rye().trees.view('a')).rows;
        await lab.rye().trees.label('a', entry?.entry.id ?? '', 'x');
        back();
        const before = await verdict(lab);
        const accepted = firstFailure(await lab.rye().threads.acceptHead('a'));
        const after = await lab.rye().threads.verify('a');
        const detail = after.checks.find(({ name }) => name === 'head')?.detail;
        await lab.rye().trees.label('a', entry?.entry.id ?? '', 'y');
        const { status } = (await lab.rye().threads.show('a')).thread;
        return [before, accepted, await verdict(lab), detail, status];
      },
    },
    {
      name: 'is not accepted if anything else is wrong',
      expected: ['transcript: thread_rolled_back', 'transcript: thread_rolled_back'],
      run: async (lab) => {
        (await runThenRollBack(lab, `${FOLDER}/a`))();
        flip(lab.path(`${FOLDER}/a/plan.json`), 1000);
        const refused = firstFailure(await lab.rye().threads.acceptHead('a'));
        return [refused, await verdict(lab)];
      },
    },
    {
      name: 'is accepted on a machine without a record of it',
      expected: ['ok', 'no local head known'],
      run: async (lab) => {
        await runHello(lab, 'a');
        const back = snapshot(lab, `${FOLDER}/a`);
        removeFolder(lab.path(FOLDER));
        removeFolder(lab.path('~/.ai/state'));
        cpSync(join(lab.home, 'kept-state-threads-a'), lab.path(`${FOLDER}/a`), {
          recursive: true,
        });
        void back;
        const found = await lab.rye().threads.verify('a');
        return [firstFailure(found), found.checks.find(({ name }) => name === 'head')?.detail];
      },
    },
    {
      name: 'has its export written again by accepting',
      expected: ['knowledge: part_missing', 'ok', 'knowledge: unsigned', 'ok', true],
      run: async (lab) => {
        await runHello(lab, 'a');
        rmSync(lab.path(`${EXPORTS}/a.md`));
        const before = await verdict(lab);
        const after = firstFailure(await lab.rye().threads.acceptHead('a'));
        lab.write(`${EXPORTS}/a.md`, 'left by a crash');
        const unsigned = await verdict(lab);
        const again = firstFailure(await lab.rye().threads.acceptHead('a'));
        const isWhole = lab.read(`${EXPORTS}/a.md`).startsWith('<!-- rye:signed:');
        return [before, after, unsigned, again, isWhole];
      },
    },
  ]);
});

describe('Readers of an edited log', () => {
  // Requirement: readers-mark-unverified
  it('report from which byte it does not verify', async () => {
    await inLab(async (lab) => {
      await runHello(lab, 'a');
      const rye = lab.rye();
      expect(await rye.threads.mark('a')).toEqual({ verified: true });
      const path = lab.path(`${FOLDER}/a/transcript.jsonl`);
      writeFileSync(path, readFileSync(path, 'utf8').replace('hello', 'hallo'));
      expect(await rye.threads.mark('a')).toMatchObject({
        verified: false,
        unverified_from: expect.any(Number),
        error: { code: 'transcript_tampered' },
      });
      writeFileSync(lab.path(`${FOLDER}/a/thread.json`), '{}');
      expect(await rye.threads.mark('a')).toMatchObject({ verified: false, unverified_from: 0 });
      expect(await rye.threads.mark('none')).toEqual({ verified: null });
    });
  });
});
