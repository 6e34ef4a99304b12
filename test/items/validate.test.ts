import { describe, expect, it, test } from 'vitest';
import type { ItemType } from '../../src/kernel/core/ids.ts';
import { formatProblem } from '../../src/kernel/items/source.ts';
import { validateItem } from '../../src/kernel/items/validate.ts';

async function validate(
  type: ItemType,
  id: string,
  text: string,
  extension = '.md',
): Promise<string[]> {
  const problems = await validateItem({ type, id, text, path: `x/${id}${extension}` });
  return problems.map((problem) => `${problem.severity}: ${formatProblem(problem)}`);
}

const GOOD = `\`\`\`xml
<directive name="greet" version="1.0.0">
<metadata>
<description>D</description><author>A</author><category>demo</category>
</metadata>
<inputs><input name="who"/></inputs>
</directive>
\`\`\`
Greet {input:who}.
`;

describe('a directive', () => {
  const check = (from: string, to: string) =>
    validate('directive', 'demo/greet', GOOD.replace(from, to));

  it('without problems has none', async () => {
    expect(await check('', '')).toEqual([]);
    expect(await validate('directive', 'greet', GOOD.replace('demo<', '<'))).toEqual([]);
  });

  test.each([
    [
      'name="greet"',
      'name="other"',
      'error: x/demo/greet.md:2: directive_malformed: the name "other" differs from the file name "greet"',
    ],
    [' version="1.0.0"', '', 'error: x/demo/greet.md:2: directive_malformed: version is missing'],
    [
      '"1.0.0"',
      '"1.0"',
      'error: x/demo/greet.md:2: directive_malformed: the version "1.0" is not X.Y.Z',
    ],
    [
      '<description>D</description>',
      '',
      'error: x/demo/greet.md:2: directive_malformed: description is missing or empty',
    ],
    [
      '<author>A</author>',
      '<author/>',
      'error: x/demo/greet.md:4: directive_malformed: author is missing or empty',
    ],
    [
      '<category>demo</category>',
      '',
      'error: x/demo/greet.md:2: directive_malformed: category is missing',
    ],
    [
      '>demo<',
      '>other<',
      'error: x/demo/greet.md:4: directive_malformed: the category "other" differs from the folder "demo"',
    ],
    [
      '{input:who}',
      '{input:whom}',
      'warning: x/demo/greet.md:9:7: directive_malformed: the text refers to the input "whom", which is not declared',
    ],
    [
      'Greet {input:who}.',
      '',
      'warning: x/demo/greet.md:1: directive_malformed: the directive has neither instructions below the fence nor a process',
    ],
    [
      '</metadata>',
      '<nope/></metadata>',
      'warning: x/demo/greet.md:5:1: directive_malformed: <nope> is unknown in the directive and is ignored',
    ],
    [
      '</metadata>',
      '<limits turn="1"/></metadata>',
      'error: x/demo/greet.md:5:1: unknown_limit: "turn" is not a limit',
    ],
    [
      '</metadata>',
      '',
      "error: x/demo/greet.md:7:1: xml_malformed: Expected closing tag 'metadata' (opened in line 3, col 1) instead of closing tag 'directive'",
    ],
  ])('%s → %s', async (from, to, problem) => {
    expect(await check(from, to)).toEqual([problem]);
  });

  it('gets all its problems at once, in file order', async () => {
    const text = GOOD.replace('<author>A</author>', '')
      .replace('</metadata>', '<limits a="1" b="2"/>\n<permissions><x/></permissions></metadata>')
      .replace(':who}', ':x}');
    expect(
      (await validate('directive', 'demo/greet', text)).map((line) =>
        line.replace(/^(\w+): [^:]+:(\d+).*/, '$1 $2'),
      ),
    ).toEqual(['error 2', 'error 5', 'error 5', 'error 6', 'warning 10']);
  });

  it('may refer to inputs of an ancestor', async () => {
    const text = GOOD.replace('<inputs><input name="who"/></inputs>', '').replace(
      '"greet"',
      '"greet" extends="base"',
    );
    expect(await validate('directive', 'demo/greet', text)).toEqual([]);
  });

  it('of no use at all has one problem', async () => {
    expect(await validate('directive', 'a', 'nothing')).toHaveLength(1);
  });
});

describe('knowledge', () => {
  const good =
    '---\nname: entry\ntitle: T\nversion: "1.0.0"\nentry_type: note\ncategory: a/b\n---\nText';
  const check = (from: string, to: string) =>
    validate('knowledge', 'a/b/entry', good.replace(from, to));

  it('without problems has none', async () => {
    expect(await check('', '')).toEqual([]);
    expect(await check('category: a/b\n', '')).toEqual([]);
  });

  test.each([
    ['name: entry', 'name: other', '2:1', 'differs from the file name'],
    ['name: entry\n', '', '2:1', 'name is missing'],
    ['title: T\n', '', '2:1', 'title is missing'],
    ['entry_type: note\n', '', '2:1', 'entry_type is missing'],
    ['version: "1.0.0"\n', '', '2:1', 'version is missing'],
    ['"1.0.0"', '1.0', '4:1', 'the version 1 is not the text X.Y.Z'],
    ['a/b\n', 'a\n', '6:1', 'differs from the folder'],
  ])('%s → %s', async (from, to, place, message) => {
    const [problem, ...others] = await check(from, to);
    expect(others).toEqual([]);
    expect(problem).toContain(`error: x/a/b/entry.md:${place}: knowledge_malformed`);
    expect(problem).toContain(message);
  });
});

describe('an id with dots', () => {
  const script = "const __version__='1.0.0';const __tool_description__='D';work()";

  test.each<[ItemType, string, string, string]>([
    ['directive', 'v1.2/greet', GOOD.replace('demo<', 'v1.2<'), '.md'],
    ['directive', 'demo/greet.v2', GOOD.replace('name="greet"', 'name="greet.v2"'), '.md'],
    ['tool', 't/a.b', script, '.js'],
  ])('of a %s is refused as a run would: %s', async (type, id, text, extension) => {
    const other = id.replaceAll('.', '/');
    expect(await validate(type, id, text, extension)).toContain(
      `error: x/${id}${extension}:1: invalid_item_id: the ${type} ${id} cannot run: a grant of ${other} would cover it too`,
    );
  });

  test('of knowledge is an id', async () => {
    const text = '---\nname: a.b\ntitle: T\nentry_type: note\nversion: "1.0.0"\n---\nText.\n';
    expect(await validate('knowledge', 'a.b', text)).toEqual([]);
  });
});

describe('other items', () => {
  test.each<[ItemType, string, string, number]>([
    ['tool', 't.js', "const __version__='1.0.0';const __tool_description__='D';work()", 0],
    ['tool', 't.js', 'work()', 2],
    ['tool', 't.js', '', 1],
    ['tool', 't.js', "const __version__='1.0.0';const __tool_description__='D'", 1],
    [
      'tool',
      't.js',
      "const __version__='1.0';const __tool_description__='D';const __category__='x';work()",
      2,
    ],
    ['tool', 't.js', 'const', 1],
    ['rule', 'r.md', '---\ncondition: x\n---\nDo not.', 0],
    ['rule', 'r.md', '---\ndescription: x\nfoo: 1\n---\nDo not.', 2],
    ['rule', 'r.md', 'Do not.', 1],
    ['skill', 's/SKILL.md', '---\nname: s\ndescription: D\n---\n', 0],
    ['skill', 's/SKILL.md', '---\nname: other\nx: 1\n---\n', 3],
  ])('%s %s %j', async (type, file, text, count) => {
    const [id = ''] = file.split(/[./]/, 1);
    expect(await validate(type, id, text, file.slice(id.length))).toHaveLength(count);
  });
});
