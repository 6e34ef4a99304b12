import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { directive, type Lab, openLab } from '../../attacks/lab.ts';
import { type FakeTerminal, openFakeTerminal } from '../../helpers/fake-terminal.ts';
import { reply, type WireBody } from '../../helpers/wire-server.ts';

let lab: Lab;
let bodies: WireBody[];

beforeEach(async () => {
  bodies = [];
  lab = await openLab();
  await lab.model(({ body }) => {
    bodies.push(body);
    return reply(`This is answer ${bodies.length}.`);
  });
});
afterEach(async () => await lab.remove());

const NOTE = directive('note', { limits: 'turns="3" spend="0.50"', body: 'Write a haiku.' });

async function chat(...args: readonly string[]): Promise<FakeTerminal> {
  const terminal = openFakeTerminal(['chat', ...args], { cwd: lab.project, env: lab.env });
  await terminal.shows('› Ask anything');
  return terminal;
}

/** The hash of every file of the project and the home. */
function files(): Readonly<Record<string, string>> {
  const found = [lab.project, lab.home].flatMap((folder) =>
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => path.join(entry.parentPath, entry.name)),
  );
  return Object.fromEntries(
    found.map((file) => [file, createHash('sha256').update(readFileSync(file)).digest('hex')]),
  );
}

it('a person who types and leaves without a message leaves nothing, and asks no model', async () => {
  const terminal = await chat();
  const before = files();
  terminal.type('Hi');
  await terminal.shows('› Hi');
  terminal.press('ctrl+u', 'ctrl+d');
  expect(await terminal.ended).toBe(0);
  expect(files()).toEqual(before);
  expect(bodies).toEqual([]);
});

it('preparing a request changes nothing, asks no model and does not fail', async () => {
  lab.signed('directives/note.md', NOTE);
  const rye = lab.rye();
  await rye.threads.plan({ directiveId: 'note' });
  const before = files();
  await rye.threads.warmUp({ directiveId: 'note' });
  await rye.threads.warmUp({ directiveId: 'missing' });
  await rye.threads.warmUp();
  expect(files()).toEqual(before);
  expect(bodies).toEqual([]);
  expect(await rye.threads.list()).toEqual([]);
});

it('a directive that changes after it was prepared runs as it is then, or not at all', async () => {
  lab.signed('directives/note.md', NOTE);
  const rye = lab.rye();
  await rye.threads.warmUp({ directiveId: 'note' });
  lab.signed('directives/note.md', NOTE.replace('haiku', 'sonnet'));
  expect(await rye.threads.execute({ directiveId: 'note' })).toMatchObject({ success: true });
  expect(JSON.stringify(bodies[0]?.messages)).toMatch(/sonnet/);
  expect(JSON.stringify(bodies[0]?.messages)).not.toMatch(/haiku/);

  await rye.threads.warmUp({ directiveId: 'note' });
  lab.write('directives/note.md', lab.read('directives/note.md').replace('sonnet', 'virus'));
  await expect(rye.threads.execute({ directiveId: 'note' })).rejects.toMatchObject({
    code: 'content_modified',
  });
  expect(bodies).toHaveLength(1);
});

it('a directive that another key signs after it was prepared does not run', async () => {
  lab.signed('directives/note.md', NOTE);
  const rye = lab.rye();
  await rye.threads.warmUp({ directiveId: 'note' });
  lab.signed('directives/note.md', NOTE, lab.stranger);
  await expect(rye.threads.execute({ directiveId: 'note' })).rejects.toMatchObject({ exitCode: 3 });
  expect(bodies).toEqual([]);
});

const rule = (words: string): string =>
  `---\nname: always\ndescription: d\nalwaysApply: true\n---\n${words}\n`;

it('a rule that changes between the first key of a message and Enter counts as it is at Enter', async () => {
  lab.signed('rules/always.md', rule('Speak of herons.'));
  const terminal = await chat();
  terminal.type('H');
  await terminal.shows('› H');
  lab.signed('rules/always.md', rule('Speak of pelicans.'));
  terminal.enter('i');
  await terminal.shows('This is answer 1.');
  expect(JSON.stringify(bodies[0])).toContain('Speak of pelicans.');
  expect(JSON.stringify(bodies[0])).not.toContain('herons');

  await terminal.shows(/─\n› Ask anything/);
  terminal.press('ctrl+d');
  expect(await terminal.ended).toBe(0);
});
