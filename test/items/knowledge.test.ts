import { describe, expect, it, test } from 'vitest';
import { parseKnowledge } from '../../src/kernel/items/knowledge.ts';
import { errorOf, where } from './helpers.ts';

const SIGNED = '<!-- rye:signed:2026-01-01T00:00:00Z:00:00:00 -->\n';

function parse(text: string, path = 'k.md') {
  return parseKnowledge(text, path);
}

describe('parseKnowledge', () => {
  test.each([
    ['frontmatter', '---\ntitle: T\nversion: "1.0.0"\ntags: [a, b]\n---\n\nBody\n'],
    [
      'frontmatter below a signature',
      `${SIGNED}---\ntitle: T\nversion: "1.0.0"\ntags: a, b, a\n---\nBody`,
    ],
    ['frontmatter named yaml', '---yaml\ntitle: T\nversion: "1.0.0"\ntags: [a, b]\n---\nBody'],
    ['CRLF', '---\r\ntitle: T\r\nversion: "1.0.0"\r\ntags: [a, b]\r\n---\r\nBody\r\n'],
    [
      'a yaml fence',
      `${SIGNED}\n\`\`\`yaml\ntitle: T\nversion: "1.0.0"\ntags: [a, b]\n\`\`\`\n\nBody\n`,
    ],
    ['a tilde fence', '~~~~yml\ntitle: T\nversion: "1.0.0"\ntags: [a, b]\n~~~~\nBody'],
  ])('reads %s', (_, text) => {
    expect(parse(text)).toMatchObject({
      title: 'T',
      version: '1.0.0',
      tags: ['a', 'b'],
      body: 'Body',
    });
  });

  it('keeps text around the fence', () => {
    expect(parse('# Head\n\n```yaml\ntitle: T\n```\n\nTail').body).toBe('# Head\n\nTail');
  });

  it('keeps later rules and fences in the body', () => {
    const body = 'a\n\n---\n\n```yaml\nx: 1\n```';
    expect(parse(`---\ntitle: T\n---\n${body}`).body).toBe(body);
  });

  it('takes the name for a title and keeps all metadata', () => {
    const knowledge = parse('---\nname: n\nextra: {a: [1]}\n---\n');
    expect(knowledge).toMatchObject({
      title: 'n',
      name: 'n',
      body: '',
      metadata: { extra: { a: [1] } },
    });
  });

  it.each([SIGNED, '# rye:signed:x\n', ''])(
    'reads a YAML file as one mapping, signed as %j',
    (signature) => {
      const knowledge = parse(`${signature}title: T\nitems:\n  - 1\n`, 'k.yaml');
      expect(knowledge).toMatchObject({ title: 'T', body: '', metadata: { items: [1] } });
    },
  );

  it('never gives one file the data of another', () => {
    const text = '---\ntitle: T\ntags: [a]\n---\nB';
    const first = parse(text);
    Object.assign(first.metadata, { title: 'changed' });
    expect(parse(text)).toMatchObject({ title: 'T', metadata: { title: 'T' } });
  });
});

describe('parseKnowledge refuses', () => {
  test.each([
    ['no metadata', '# Title\n\nText', 'k.md 1:'],
    ['an unclosed frontmatter', '---\ntitle: T\n', 'k.md 1:'],
    ['a frontmatter closed by something else', '---\ntitle: T\n--- x\n', 'k.md 1:'],
    ['an unclosed fence', 'x\n```yaml\ntitle: T\n', 'k.md 2:'],
    ['no title', '---\ntags: [a]\n---\n', 'k.md 2:1'],
    ['empty metadata', '---\n---\nx', 'k.md 1:1'],
    ['only comments', '---\n# x\n---\nx', 'k.md 1:1'],
    ['a list', '---\n- a\n---\n', 'k.md 2:1'],
    ['broken YAML', `${SIGNED}---\ntitle: T\nb: [1\n---\n`, 'k.md 4:6'],
    ['broken YAML in a fence', 'x\n\n```yaml\ntitle: T\n  b: 1\n```', 'k.md 4:8'],
    ['a key twice', '---\ntitle: T\ntitle: U\n---\n', 'k.md 3:1'],
    ['a title that is no text', '---\nx: 1\ntitle: {a: 1}\n---\n', 'k.md 3:1'],
    ['tags that are no texts', '---\ntitle: T\ntags: [{a: 1}]\n---\n', 'k.md 3:1'],
    ['broken YAML in a YAML file', 'title: "T\n', 'k.yaml 2:1'],
  ])('%s', (_, text, place) => {
    const path = place.split(' ')[0] ?? '';
    const error = errorOf(() => parse(text, path));
    expect(`${error.location?.path} ${where(error)}`).toBe(
      place.replace(' ', ' knowledge_malformed '),
    );
  });

  it.each(['js', 'javascript', 'JS', 'json', 'coffee', 'cson', 'toml', ' js'])(
    '%s as frontmatter, and runs nothing',
    (language) => {
      const code = '{ title: (globalThis.hostileFrontmatterRan = true, "T") }';
      const error = errorOf(() => parse(`---${language}\n${code}\n---\nBody`));
      expect(error.code).toBe('knowledge_malformed');
      expect(globalThis).not.toHaveProperty('hostileFrontmatterRan');
    },
  );

  it('an alias bomb', () => {
    const lines = Array.from(
      { length: 12 },
      (_, at) => `a${at + 1}: &a${at + 1} [${Array(10).fill(`*a${at}`).join(', ')}]`,
    );
    const error = errorOf(() => parse(`---\ntitle: T\na0: &a0 [x]\n${lines.join('\n')}\n---\n`));
    expect(error.code).toBe('knowledge_malformed');
  });
});
