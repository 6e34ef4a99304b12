import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseRule } from '../../src/kernel/items/rule.ts';
import { bakedRule } from '../../src/kernel/startup/baked-rules.ts';
import { sha256Hex } from '../../src/kernel/trust/keys.ts';

const FOLDER = '.ai/rules';
const files = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' }).filter((name) =>
  name.endsWith('.md'),
);

describe('the rules in the program', () => {
  it.each(files)('equal the parsed %s', (name) => {
    const text = readFileSync(path.join(FOLDER, name), 'utf8');
    const parsed = parseRule(text, name);
    const { path: _path, name: _name, metadata: _metadata, mapping: _mapping, ...rest } = parsed;
    const { warnings, ...content } = rest;
    expect(bakedRule(sha256Hex(text))).toEqual(content);
    expect(warnings).toEqual([]);
  });

  it('are of no other text', () => {
    const text = readFileSync(path.join(FOLDER, files[0] ?? ''), 'utf8');
    expect(bakedRule(sha256Hex(`${text}\n`))).toBeUndefined();
    expect(bakedRule('constructor')).toBeUndefined();
  });
});
