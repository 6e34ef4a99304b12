import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { applyEdit, stripLineNumbers } from '../../../src/kernel/tools/builtin/edit.ts';

function edit(content: string, oldString: string, newString: string, replaceAll = false) {
  return applyEdit(content, { oldString, newString, replaceAll });
}

function problem(content: string, oldString: string, newString = 'new'): string {
  const result = edit(content, oldString, newString);
  return result.ok ? '' : result.problem;
}

describe('applyEdit', () => {
  it.each([
    ['an inserted line', '1\ta\nnew line\n2\tb', 'a\nnew line\nb\n'],
    ['an inserted line with a number', '1\ta\n2\tnew\n2\tb', 'a\nnew\nb\n'],
    ['a deleted line', '1\ta', 'a\n'],
    ['numbers with a gap', '1\ta\n3\tc', 'a\nc\n'],
    ['no numbers', 'x\ny', 'x\ny\n'],
  ])('takes pasted line numbers out of the new text: %s', (_what, newString, content) => {
    expect(edit('a\nb\n', '1\ta\n2\tb', newString)).toMatchObject({ ok: true, content });
  });

  it('keeps numbers that belong to the text', () => {
    expect(edit('1\tx\n', '1\tx', '1\tx\n2\ty')).toMatchObject({ content: '1\tx\n2\ty\n' });
  });

  it('replaces one exact text, taking $ literally', () => {
    expect(edit('a\nb\nc', 'b', '$& $1')).toEqual({
      ok: true,
      content: 'a\n$& $1\nc',
      replacements: 1,
      line: 2,
    });
  });

  // Requirement: edit-unique
  it('refuses a text that is not unique and names its lines', () => {
    expect(problem('x\ny\nx', 'x')).toContain('old_string occurs 2 times (lines 1, 3).');
    expect(problem('x\ny\nx\nx', 'x')).toBe(
      'old_string occurs 3 times (lines 1, 3, 4). Add surrounding lines to make it unique, or set replace_all.',
    );
    expect(edit('x\ny\nx', 'x', 'z', true)).toMatchObject({ content: 'z\ny\nz', replacements: 2 });
  });

  it('refuses nothing to find and nothing to change', () => {
    expect(problem('x', '')).toContain('empty');
    expect(problem('x', 'x', 'x')).toContain('the same');
  });

  // Requirement: numbered-lines
  it('matches pasted numbered lines, after the exact text', () => {
    expect(edit('one\ntwo\nthree\n', '2\ttwo\n3\tthree', '2\tTWO\n3\tTHREE')).toMatchObject({
      content: 'one\nTWO\nTHREE\n',
    });
    expect(edit('2\ttwo\nx', '2\ttwo', '2\tTWO')).toMatchObject({ content: '2\tTWO\nx' });
  });

  it.each([
    ['1\ta\n2\tb', 'a\nb'],
    ['   9\ta\n  10\tb\n', 'a\nb\n'],
    ['1\ta\n3\tb', undefined],
    ['1\ta\nb', undefined],
    ['2020\tyear\n2020\tyear', undefined],
    ['', undefined],
  ])('strips consistent ascending numbers only: %j', (text, expected) => {
    expect(stripLineNumbers(text)).toBe(expected);
  });

  // Requirement: edit-keeps-form
  it.each([
    ['one line becomes two', 'one\r\ntwo\r\n', 'two', 'two\n2', 'one\r\ntwo\r\n2\r\n'],
    ['several lines', 'a\r\nb\r\nc\r\n', 'a\nb', 'A\nB', 'A\r\nB\r\nc\r\n'],
    ['CRLF given', 'a\r\nb\r\n', 'a\r\nb', 'A\nB\nC', 'A\r\nB\r\nC\r\n'],
    ['CRLF given for LF', 'a\nb\n', 'a\r\nb', 'A\r\nB\r\nC', 'A\nB\nC\n'],
    ['first line', 'a\r\nb', 'a', '0\na', '0\r\na\r\nb'],
    ['last line without an end', 'a\r\nb', 'b', 'b\nc', 'a\r\nb\r\nc'],
    ['fewer lines', 'a\r\nb\r\nc\r\nd', 'a\nb\nc', 'x', 'x\r\nd'],
    ['only a line end', 'a\r\nb\r\n', '\nb', '', 'a\r\n'],
    ['numbered lines', 'a\r\nb\r\n', '1\ta\n2\tb', '1\ta\n2\tx\n3\tb', 'a\r\nx\r\nb\r\n'],
    ['mixed ends, each stays', 'a\r\nb\nc\r\n', 'a\nb\nc', 'A\nB\nC', 'A\r\nB\nC\r\n'],
    ['mixed ends, line added', 'a\r\nb\nc\r\n', 'b', 'b\nx', 'a\r\nb\nx\nc\r\n'],
    ['mixed ends, same end', 'a\nb\r\nc\n', 'a\nb\nc\n', 'a\nx\ny\nc\n', 'a\nx\r\ny\r\nc\n'],
    ['byte order mark', '\uFEFFa\r\nb\r\n', 'a\nb', 'x\ny', '\uFEFFx\r\ny\r\n'],
    ['byte order mark given', '\uFEFFa\nb\n', '\uFEFFa', 'x', '\uFEFFx\nb\n'],
    ['mark given for a file without', 'a\nb\n', '\uFEFFa', '\uFEFFx', 'x\nb\n'],
    ['no last line end', 'a\nb', 'b\n', 'c\n', 'a\nc'],
    ['no last line end, line added', 'a\r\nb', 'b\n', 'b\nc\n', 'a\r\nb\r\nc'],
    ['a lone carriage return', 'a\rb\nc\n', 'c', 'c\nd', 'a\rb\nc\nd\n'],
    ['ends are what is changed', 'a\r\nb\r\n', 'a\r\n', 'a\n', 'a\nb\r\n'],
    ['the mark is what is changed', '\uFEFFa\n', '\uFEFFa', 'a', 'a\n'],
    ['no line end at all', 'a', 'a', 'b\r\nc', 'b\r\nc'],
  ])('keeps the form of the file: %s', (_, content, from, to, expected) => {
    expect(edit(content, from, to)).toMatchObject({ content: expected });
  });

  it('keeps the end of each line that an edit of a part does not touch', () => {
    const end = fc.constantFrom('\n', '\r\n');
    const line = fc.tuple(fc.constantFrom('a', 'b', ''), end);
    fc.assert(
      fc.property(fc.array(line), fc.array(line), end, (head, tail, middle) => {
        const text = (lines: [string, string][]) => lines.flat().join('');
        const lf = (value: string) => value.replaceAll('\r', '');
        const content = `${text(head)}X${middle}Y${text(tail)}`;
        const result = edit(content, 'X\nY', 'X\nnew\nY');
        if (!result.ok) throw new Error(result.problem);
        expect(lf(result.content)).toBe(lf(content).replace('X\nY', 'X\nnew\nY'));
        expect(result.content).toBe(`${text(head)}X${middle}new${middle}Y${text(tail)}`);
      }),
      { numRuns: 200, seed: 11 },
    );
  });

  it('replaces each occurrence with the line ends of its place', () => {
    expect(edit('x\r\nx\nx', 'x', 'x\ny', true)).toMatchObject({
      content: 'x\r\ny\r\nx\ny\nx\ny',
      replacements: 3,
    });
  });

  // Requirement: edit-nearest-lines
  it('previews the nearest lines', () => {
    const content = 'import a\n\nfunction load(path) {\n  return read(path);\n}\n';
    expect(problem(content, 'function load(file) {\n  return read(file);\n}')).toBe(
      'old_string was not found. The nearest lines are:\n3\tfunction load(path) {\n4\t  return read(path);\n5\t}',
    );
    expect(problem(content, 'function  load(path) {')).toContain('differs only in white space');
    expect(problem(content, 'zebra quagga okapi')).toBe(
      'old_string was not found. Read the file again and copy the text exactly.',
    );
  });

  it('bounds the work of the preview', () => {
    const content = Array.from(
      { length: 100_000 },
      (_, index) => `value ${index} = compute(${index})`,
    ).join('\n');
    expect(
      problem(content, 'value 70000 = calculate(70000)\nvalue 70001 = compute(70001)'),
    ).toContain('70001\tvalue 70000');
  });

  it('leaves everything outside of the replaced text alone', () => {
    fc.assert(
      fc.property(
        fc.string(),
        fc.string({ minLength: 1 }),
        fc.string(),
        fc.string(),
        (head, old, next, tail) => {
          const content = `${head}${old}${tail}`;
          const result = applyEdit(content, { oldString: old, newString: next, replaceAll: true });
          const expected = old === next ? undefined : content.split(old).join(next);
          expect(result.ok ? result.content : undefined).toBe(expected);
        },
      ),
      { numRuns: 300, seed: 11 },
    );
  });
});
