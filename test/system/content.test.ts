import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { parseDirective } from '../../src/kernel/items/directive.ts';
import { validateItem } from '../../src/kernel/items/validate.ts';

const ROOT = path.resolve(import.meta.dirname, '../../.ai');
const FOLDERS = { directive: 'directives', knowledge: 'knowledge', tool: 'tools' } as const;

function filesOf(folder: string): string[] {
  const entries = readdirSync(path.join(ROOT, folder), { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(ROOT, path.join(entry.parentPath, entry.name)));
}

const ITEMS = (['directive', 'knowledge', 'tool'] as const).flatMap((type) =>
  filesOf(FOLDERS[type]).map((file) => ({
    type,
    file,
    id: file.slice(FOLDERS[type].length + 1, -path.extname(file).length),
  })),
);

const ids = (type: string): string[] =>
  ITEMS.filter((item) => item.type === type).map(({ id }) => id);

describe('the shipped items', () => {
  it.each(ITEMS)('$type $id has no problem, not even a warning', async ({ type, file, id }) => {
    const text = readFileSync(path.join(ROOT, file), 'utf8');
    expect(await validateItem({ type, id, path: file, text })).toEqual([]);
  });

  it('are those that the documentation names', () => {
    expect(ids('directive').toSorted()).toEqual([
      'hello',
      'rye/agent/continuation',
      'rye/core/ask',
      'rye/core/base',
      'rye/core/base_execute_only',
      'rye/core/base_review',
      'rye/core/build',
      'rye/core/chat',
      'rye/core/create_directive',
      'rye/core/plan',
      'rye/core/project_report',
      'rye/examples/fan_out_report',
      'rye/examples/folder_share',
    ]);
  });

  it.each(ITEMS.filter(({ type }) => type === 'directive'))(
    '$id refers to shipped items only',
    ({ file }) => {
      const text = readFileSync(path.join(ROOT, file), 'utf8');
      const { context, steps, continuationDirective, extends: parent } = parseDirective(text, file);
      const contexts = [...context.system, ...context.before, ...context.after].map(({ id }) => id);
      expect(ids('knowledge')).toEqual(expect.arrayContaining(contexts));
      const parents = [continuationDirective, parent].filter((id) => id !== undefined);
      expect(ids('directive')).toEqual(expect.arrayContaining(parents));
      const builtin = [
        'rye/agent/threads/orchestrator',
        'rye/file-system/glob',
        'rye/file-system/grep',
        'rye/file-system/read',
        'rye/file-system/write',
      ];
      const tools = steps.flatMap(({ calls }) =>
        calls.filter(({ item_type }) => item_type === 'tool').map(({ item_id }) => item_id),
      );
      expect([...ids('tool'), ...builtin]).toEqual(expect.arrayContaining(tools));
    },
  );
});

describe('the shipped configuration', () => {
  it.each(filesOf('config'))('%s parses and has a comment on its purpose', (file) => {
    const text = readFileSync(path.join(ROOT, file), 'utf8');
    expect(parse(text)).toBeTypeOf('object');
    expect(text).toMatch(/^# \w/m);
  });
});
