import { expect, it } from 'vitest';
import type { SignableType } from '../../src/kernel/core/ids.ts';
import { itemSubject } from '../../src/kernel/items/binding.ts';

it.each<[SignableType, string, string]>([
  ['tool', '.py', 'tool.py'],
  ['tool', '.sh', 'tool.sh'],
  ['tool', '', 'tool'],
  ['directive', '.md', 'directive'],
  ['knowledge', '.md', 'knowledge'],
  ['config', '.yaml', 'config'],
  ['skill', '.md', 'skill'],
])('a %s with %j is signed as %s: its extension selects what runs it', (type, extension, kind) => {
  expect(itemSubject({ type, id: 'a/b', extension })).toEqual({ kind, id: 'a/b' });
});
