// Requirement: no-write-through-links
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { ThreadFiles } from '../../src/kernel/threads/ports.ts';
import type { ThreadDocument } from '../../src/kernel/threads/thread-document.ts';
import { openThreadFiles, threadsFolder } from '../../src/kernel/threads/thread-files-fs.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { testKey } from '../log/support.ts';
import { VirtualClock } from '../loop/scripted.ts';

function temporaryFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'rye-own-')));
  onTestFinished(() => removeFolder(folder));
  return folder;
}

const DOCUMENT = { thread_id: 't' } as ThreadDocument;
const KNOWLEDGE = 'knowledge/agent/threads/job';

/** A way to write, the file of it below .ai, and how it refuses. */
const WRITES: readonly (readonly [
  name: string,
  place: string,
  write: (files: ThreadFiles, project: string) => Promise<unknown>,
])[] = [
  ['its document', 'state/threads/t/thread.json', (files) => files.writeDocument(DOCUMENT)],
  [
    'the list of its grants',
    'state/threads/t/capabilities.md',
    (files) => files.writeCapabilities('t', 'x'),
  ],
  ['an artifact', 'state/threads/t/artifacts/a.txt', (files) => files.writeArtifact('t', 'a', 'x')],
  [
    'a patch',
    'state/threads/t/artifacts/a.patch',
    (files) => files.writePatch('t', 'a', Buffer.from('x')),
  ],
  [
    'a saved patch',
    'state/threads/t/worktree-0.patch',
    (files) => files.writeSaved('t', 0, Buffer.from('x')),
  ],
  [
    'a copy of a file',
    'state/threads/t/copies/x',
    (files) => files.copies.keep('t', Buffer.from('x')),
  ],
  [
    'its export',
    `${KNOWLEDGE}/t.md`,
    (files, project) => files.writeKnowledge('t', join(project, '.ai', KNOWLEDGE, 't.md'), 'x'),
  ],
];

function opened() {
  const project = temporaryFolder();
  const { signer } = testKey();
  const files = openThreadFiles({
    projectPath: project,
    clock: new VirtualClock({ auto: false }),
    key: () => signer as never,
    keys: undefined as never,
    isStoreLocal: true,
  });
  mkdirSync(threadsFolder(project), { recursive: true });
  return { project, files };
}

it.each(WRITES)('%s is written into the folders of the thread', async (_, place, write) => {
  const { project, files } = opened();
  await write(files, project);
  expect(readdirSync(join(project, '.ai', dirname(place)))).toHaveLength(1);
});

it.each(WRITES)('%s is not written through a linked folder', async (_, place, write) => {
  const { project, files } = opened();
  const outside = temporaryFolder();
  const folder = join(project, '.ai', dirname(place));
  mkdirSync(dirname(folder), { recursive: true });
  symlinkSync(outside, folder);
  await expect(write(files, project)).rejects.toMatchObject({ code: 'path_denied' });
  expect(readdirSync(outside)).toEqual([]);
});

/** Files of folders within the thread's folder. */
const DEEP = WRITES.filter(([, place]) => place.split('/').length > 4);

it.each(DEEP)('%s is not written through a link above its folder', async (_, place, write) => {
  const { project, files } = opened();
  const outside = temporaryFolder();
  const above = dirname(join(project, '.ai', dirname(place)));
  mkdirSync(dirname(above), { recursive: true });
  symlinkSync(outside, above);
  await expect(write(files, project)).rejects.toMatchObject({ code: 'path_denied' });
  expect(readdirSync(outside)).toEqual([]);
});

it('the export of a thread that runs is not written through a link in its place', async () => {
  const { project, files } = opened();
  const target = join(temporaryFolder(), 'mine.md');
  writeFileSync(target, 'mine');
  const path = join(project, '.ai', KNOWLEDGE, 't.md');
  mkdirSync(dirname(path), { recursive: true });
  symlinkSync(target, path);
  expect(await files.openExport(path, false)).toBeUndefined();
  expect(readFileSync(target, 'utf8')).toBe('mine');
  expect(existsSync(path)).toBe(true);
});

it.each(WRITES.filter(([, place]) => /[.](?:json|md)$/.test(place)))(
  '%s is not written through a link in its place',
  async (_, place, write) => {
    const { project, files } = opened();
    const target = join(temporaryFolder(), 'mine');
    writeFileSync(target, 'mine');
    const path = join(project, '.ai', place);
    mkdirSync(dirname(path), { recursive: true });
    symlinkSync(target, path);
    await expect(write(files, project)).rejects.toMatchObject({ code: 'path_denied' });
    expect([readFileSync(target, 'utf8'), readFileSync(path, 'utf8')]).toEqual(['mine', 'mine']);
  },
);
