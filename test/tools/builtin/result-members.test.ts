import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import { type Lab, openLab } from '../../attacks/lab.ts';

let lab: Lab;

beforeEach(async () => {
  lab = await openLab();
});
afterEach(async () => await lab.remove());

const PAGE = readFileSync(path.resolve(import.meta.dirname, '../../../docs/tools.md'), 'utf8');

/** Returns the members of the row of a tool, without those in parentheses. */
function documented(tool: string): readonly string[] {
  const table = PAGE.slice(PAGE.indexOf('| result of |'), PAGE.indexOf('File tools stay inside'));
  const row = table.split('\n').find((line) => line.split('|')[1]?.includes(`\`${tool}\``)) ?? '';
  const members = (row.split('|')[2] ?? '').replaceAll(/\([^)]*\)/g, '');
  return [...members.matchAll(/`(\w+)`/g)].map(([, name = '']) => name).toSorted();
}

it('docs/tools.md names the members of the results of built-in tools', async () => {
  lab.write('../a.txt', 'one\ntwo\n');
  const calls: readonly (readonly [tool: string, id: string, params: JsonObject])[] = [
    ['write', 'rye/file-system/write', { path: 'b.txt', content: 'one' }],
    ['edit', 'rye/file-system/edit', { path: 'b.txt', old_string: 'one', new_string: 'two' }],
    ['read', 'rye/file-system/read', { path: 'b.txt' }],
    ['ls', 'rye/file-system/ls', { path: '.' }],
    ['glob', 'rye/file-system/glob', { pattern: '*.txt' }],
    ['grep', 'rye/file-system/grep', { pattern: 'two' }],
    ['rye/bash', 'rye/bash', { command: 'echo hi' }],
    ['rye/search', 'rye/search', { query: 'quolls' }],
  ];
  for (const [tool, toolId, params] of calls) {
    const request = { toolId, params, acknowledge: ['elevated' as const] };
    const { data } = await lab.rye().threads.executeTool(request);
    const optional = tool === 'read' ? ['next_offset'] : [];
    expect([tool, [...Object.keys(data ?? {}), ...optional].toSorted()]).toEqual([
      tool,
      documented(tool),
    ]);
  }
});
