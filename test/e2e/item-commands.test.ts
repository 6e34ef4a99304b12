import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

const NOTE = `---
name: birds
title: Birds
version: "1.0.0"
entry_type: reference
category: team
---

The pelican fishes.
`;

test('an entry is validated, signed, listed, verified, found and fetched', async () => {
  const here = await workspace();
  const file = path.join(here.project, '.ai/knowledge/team/birds.md');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, NOTE);
  const item = ['knowledge', 'team/birds'];
  expect(await here.json(['validate', ...item])).toMatchObject({ success: true });
  expect((await here.rye(['verify', ...item])).code).toBe(3);
  expect(await here.json(['sign', ...item])).toMatchObject({ items: [{ status: 'signed' }] });
  expect((await here.rye(['verify', ...item])).code).toBe(0);
  expect(await here.json(['list', 'knowledge'])).toMatchObject({
    items: expect.arrayContaining([
      expect.objectContaining({ id: 'team/birds', signature: 'signed' }),
    ]) as unknown,
  });
  expect(JSON.stringify(await here.json(['search', 'knowledge', 'pelican']))).toContain(
    'team/birds',
  );
  expect(JSON.stringify(await here.json(['fetch', ...item]))).toContain('The pelican fishes.');
});

test('rye execute runs a directive and a tool', async () => {
  const here = await workspace();
  const greeting = await here.json(['execute', 'directive', 'hello', '--input', 'who=Ada']);
  expect(greeting).toMatchObject({ status: 'completed', outputs: { greeting: 'Hello, Ada!' } });
  writeFileSync(path.join(here.project, 'a.txt'), 'one\n');
  const read = ['execute', 'tool', 'rye/file-system/read', '--param', 'path=a.txt'];
  expect(await here.rye(read)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('one') as string,
  });
});
