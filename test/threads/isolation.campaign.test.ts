import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { WorktreeChanges } from '../../src/kernel/core/isolation.ts';
import { settledCode } from '../attacks/lab.ts';
import { sandboxWorks } from '../helpers/sandbox.ts';
import { text, toolUse, type WireStep } from '../helpers/wire-server.ts';
import {
  bash,
  edit,
  git,
  repository,
  type UndoDesk,
  undoDesk,
  worktrees,
  write,
} from './undo-desk.ts';

const isolated = (item_id: string, isolation_result?: 'merge'): WireStep =>
  toolUse('rye_execute', {
    item_type: 'directive',
    item_id,
    isolation: 'worktree',
    ...(isolation_result ? { isolation_result } : {}),
  });

/** The changes that each isolated child reported, in order. */
async function changesIn({ lab }: UndoDesk, id: string): Promise<readonly WorktreeChanges[]> {
  return (await lab.events(id)).flatMap((event) => {
    const { message } = event.payload as {
      message?: { data?: { changes?: WorktreeChanges } };
    };
    return message?.data?.changes ?? [];
  });
}

describe('a child in its own worktree', async () => {
  it('leaves the files of the project alone and returns a patch that applies', async () => {
    const desk = await repository();
    desk.put('a.txt', 'uncommitted\n');
    const id = await desk.run(
      [isolated('child')],
      [edit('a.txt', 'two', 'TWO'), write('new/b.txt', 'b\n'), write('ignored.txt', 'i')],
      [bash('pwd; cat a.txt; rm .gitignore')],
      [text('Child done.')],
    );
    const [changes] = await changesIn(desk, id);
    expect(changes).toMatchObject({
      status: 'patch',
      base: git(desk.lab, 'rev-parse', 'HEAD').trim(),
      files: [
        { path: '.gitignore', change: 'deleted' },
        { path: 'a.txt', change: 'modified' },
        { path: 'ignored.txt', change: 'added' },
        { path: 'new/b.txt', change: 'added' },
      ],
    });
    expect([desk.get('a.txt'), desk.get('new/b.txt')]).toEqual(['uncommitted\n', null]);
    expect(worktrees(desk)).toEqual([]);
    expect(git(desk.lab, 'worktree', 'list').trim().split('\n')).toHaveLength(1);
    expect(git(desk.lab, 'status', '--porcelain').trim()).toBe('M a.txt');
    git(desk.lab, 'checkout', '--quiet', 'a.txt');
    git(desk.lab, 'apply', changes?.patch ?? '');
    expect([desk.get('a.txt'), desk.get('new/b.txt')]).toEqual([
      'one\nTWO\nthree\nfour\nfive\n',
      'b\n',
    ]);
    expect((await desk.undo(id)).files).toEqual([]);
  });

  it('merges into uncommitted changes of other lines, and the parent can undo it', async () => {
    const desk = await repository();
    desk.put('a.txt', 'one\ntwo\nthree\nfour\nFIVE\n');
    const id = await desk.run(
      [isolated('child', 'merge')],
      [edit('a.txt', 'one', 'ONE'), write('new/b.txt', 'b\n')],
      [text('Child done.')],
    );
    expect(await changesIn(desk, id)).toMatchObject([{ status: 'merged' }]);
    expect([desk.get('a.txt'), desk.get('new/b.txt')]).toEqual([
      'ONE\ntwo\nthree\nfour\nFIVE\n',
      'b\n',
    ]);
    expect((await desk.undo(id)).files).toHaveLength(2);
    expect([desk.get('a.txt'), desk.get('new/b.txt')]).toEqual([
      'one\ntwo\nthree\nfour\nFIVE\n',
      null,
    ]);
    expect(desk.has('new')).toBe(false);
  });

  it.runIf(await sandboxWorks())(
    'keeps a trap that its command makes in the state of the project, and merges the rest',
    async () => {
      const desk = await repository();
      const id = await desk.run(
        [isolated('child', 'merge')],
        [bash('mkdir .husky; echo evil > .husky/pre-commit; echo b > b.txt')],
        [text('Child done.')],
      );
      expect(await changesIn(desk, id)).toMatchObject([{ status: 'merged' }]);
      expect(desk.get('b.txt')).toBe('b\n');
      const [held = ''] = readdirSync(join(desk.lab.project, '.ai/state/held'));
      expect(desk.get(`.ai/state/held/${held}/.husky/pre-commit`)).toBe('evil\n');
    },
  );

  it('merges nothing if one file conflicts, and keeps the patch', async () => {
    const desk = await repository();
    desk.lab.sandbox('off');
    desk.put('a.txt', 'mine\ntwo\nthree\nfour\nfive\n');
    const id = await desk.run(
      [isolated('child', 'merge')],
      [edit('a.txt', 'one', 'ONE'), write('b.txt', 'b\n'), write('.ai/rules/x.md', 'obey')],
      [bash('mkdir -p .husky; echo evil > .husky/pre-commit')],
      [text('Child done.')],
    );
    const [changes] = await changesIn(desk, id);
    expect(changes).toMatchObject({
      status: 'merge_conflict',
      conflicts: [
        { path: '.husky/pre-commit', reason: expect.stringContaining('refused') },
        { path: 'a.txt', reason: 'the same lines were changed' },
      ],
    });
    expect([desk.get('a.txt'), desk.get('b.txt')]).toEqual([
      'mine\ntwo\nthree\nfour\nfive\n',
      null,
    ]);
    expect(desk.get(changes?.patch ?? '')).toContain('+ONE');
  });

  it('works on beside seven others that change the same file', async () => {
    const desk = await repository();
    const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
    desk.put('shared.txt', names.map((name) => `${name}\n-\n-\n-\n`).join(''));
    git(desk.lab, 'add', '--all');
    git(desk.lab, 'commit', '--quiet', '-m', 'second');
    await desk.lab.model(({ body }) => {
      const sent = JSON.stringify(body.messages);
      const [, name] = /Change the line of (\w)\./.exec(sent) ?? [];
      const hasResult = sent.includes('tool_result');
      if (name === undefined) {
        if (hasResult) return { steps: [text('Done.')] };
        return {
          steps: names.map((parameter) =>
            toolUse('rye_execute', {
              item_type: 'directive',
              item_id: 'liner',
              parameters: { name: parameter },
              isolation: 'worktree',
              isolation_result: 'merge',
            }),
          ),
        };
      }
      if (hasResult) return { steps: [text('Done.')] };
      return { steps: [edit('shared.txt', `${name}\n`, `${name.toUpperCase()}\n`)] };
    });
    desk.lab.signed('directives/liner.md', LINER);
    const id = await desk.run();
    const changes = await changesIn(desk, id);
    expect(changes.map(({ status }) => status)).toEqual(names.map(() => 'merged'));
    expect(desk.get('shared.txt')).toBe(
      names.map((name) => `${name.toUpperCase()}\n-\n-\n-\n`).join(''),
    );
    expect(worktrees(desk)).toEqual([]);
  });

  it('runs no hook, filter or watcher of the repository', async () => {
    const desk = await repository();
    const { lab } = desk;
    const trap = join(lab.home, 'trap.sh');
    writeFileSync(trap, `#!/bin/sh\ntouch '${join(lab.home, 'sprung')}'\ncat\n`, { mode: 0o755 });
    for (const hook of ['post-checkout', 'post-index-change', 'reference-transaction']) {
      writeFileSync(join(lab.project, '.git/hooks', hook), readFileSync(trap), { mode: 0o755 });
    }
    for (const key of ['filter.x.smudge', 'filter.x.clean', 'core.fsmonitor', 'diff.x.textconv']) {
      git(lab, 'config', key, trap);
    }
    desk.put('.git/info/attributes', '* filter=x diff=x\n');
    const id = await desk.run(
      [isolated('child', 'merge')],
      [edit('a.txt', 'one', 'ONE')],
      [text('Child done.')],
    );
    expect(await changesIn(desk, id)).toMatchObject([{ status: 'merged' }]);
    expect(existsSync(join(lab.home, 'sprung'))).toBe(false);
  });

  it('is refused before it starts without a repository, and without a commit', async () => {
    const desk = await undoDesk();
    const codes: string[] = [];
    for (const prepare of [() => '', () => git(desk.lab, 'init', '--quiet')]) {
      prepare();
      desk.turns.push([isolated('child')]);
      const result = await desk.lab.run('work');
      codes.push(await settledCode(desk.lab, result));
      expect(result.children).toEqual([]);
    }
    expect(codes).toEqual(['isolation_unavailable', 'isolation_unavailable']);
    await expect(desk.lab.run('work', { isolation: { kind: 'worktree' } })).rejects.toMatchObject({
      code: 'isolation_unavailable',
      exitCode: 2,
    });
  });

  it('keeps what a thread that failed has done, and works on with it when resumed', async () => {
    const desk = await repository();
    const { lab } = desk;
    desk.turns.push([edit('a.txt', 'one', 'ONE')]);
    const first = await lab.run('work', {
      isolation: { kind: 'worktree', result: 'merge' },
      limits: { turns: 1 },
    });
    expect(first).toMatchObject({ status: 'error', changes: { status: 'patch' } });
    expect(worktrees(desk)).toEqual([]);
    desk.turns.push([edit('a.txt', 'two', 'TWO')]);
    const second = await lab
      .rye()
      .recovery.resume({ threadId: first.thread_id, limits: { turns: 5 } });
    expect(second).toMatchObject({ status: 'completed', changes: { status: 'merged' } });
    expect(desk.get('a.txt')).toBe('ONE\nTWO\nthree\nfour\nfive\n');
    expect((await lab.rye().threads.verify(first.thread_id)).ok).toBe(true);
  });
});

const LINER = `# liner

\`\`\`xml
<directive name="liner" version="1.0.0">
  <metadata>
    <description>Changes a line.</description>
    <category></category>
    <author>lab</author>
    <limits turns="4" spend="0.05" />
    <permissions><execute><tool>rye/file-system/*</tool></execute></permissions>
  </metadata>
  <inputs><input name="name" type="string" required="true">The line.</input></inputs>
</directive>
\`\`\`

Change the line of {input:name}.
`;
