import { describe, expect, it, test } from 'vitest';
import { parseRule } from '../../src/kernel/items/rule.ts';
import { errorOf, where } from './helpers.ts';

function parse(frontmatter: string, body = 'Use unknown.') {
  return parseRule(`---\n${frontmatter}\n---\n${body}\n`, '.ai/rules/ts/no-any.md');
}

describe('parseRule', () => {
  it('reads the members of the specification', () => {
    expect(
      parse(`description: No any
condition: [": any", "as any, too"]
scope: "tool:edit(*.ts), text"
globs: ["**/*.ts"]
interrupt: prose-only
repeat: after-gap
gap: 3
directives: demo/*
engine: js
enabled: false`),
    ).toMatchObject({
      name: 'no-any',
      description: 'No any',
      conditions: [': any', 'as any, too'],
      scope: ['tool:edit(*.ts), text'],
      globs: ['**/*.ts'],
      interrupt: 'prose-only',
      repeat: 'after-gap',
      gap: 3,
      directives: ['demo/*'],
      engine: 'js',
      enabled: false,
      alwaysApply: false,
      body: 'Use unknown.',
      warnings: [],
    });
  });

  it('reads the familiar spellings', () => {
    expect(
      parse(
        'ttsrTrigger: "a,b"\ninterruptMode: never\nrepeatMode: once\nrepeatGap: 0\nalwaysApply: true\nagents: [main]',
      ),
    ).toMatchObject({
      conditions: ['a,b'],
      interrupt: 'never',
      repeat: 'once',
      gap: 0,
      alwaysApply: true,
      directives: ['main'],
      warnings: [],
    });
  });

  it('fills in defaults', () => {
    expect(parse('condition: x')).toMatchObject({
      enabled: true,
      engine: 're2',
      globs: [],
      scope: [],
      description: '',
    });
    expect(parse('condition: x')).not.toHaveProperty('interrupt');
  });

  it('warns about unknown members', () => {
    expect(parse('condition: x\nscop: text').warnings).toMatchObject([
      { location: { line: 3, column: 1 }, hint: 'Did you mean scope?' },
    ]);
  });

  test.each([
    ['interrupt: sometimes', 'rule_malformed 2:1'],
    ['condition: x\nrepeat: often', 'rule_malformed 3:1'],
    ['gap: -1', 'rule_malformed 2:1'],
    ['gap: soon', 'rule_malformed 2:1'],
    ['enabled: "yes"', 'rule_malformed 2:1'],
    ['condition: {a: 1}', 'rule_malformed 2:1'],
    ['a: [', 'rule_malformed 2:5'],
  ])('refuses %s', (frontmatter, place) => {
    expect(where(errorOf(() => parse(frontmatter)))).toBe(place);
  });

  it('refuses a rule without body and a file without frontmatter', () => {
    expect(errorOf(() => parse('condition: x', '')).message).toContain('rule body is empty');
    expect(errorOf(() => parseRule('Text', 'r.md')).message).toContain('no frontmatter');
  });
});
