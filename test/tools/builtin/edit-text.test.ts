import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { applyEdit, stripLineNumbers } from '../../../src/tools/builtin/edit.ts';

function edit(content: string, oldString: string, newString: string, replaceAll = false) {
  return applyEdit(content, { oldString, newString, replaceAll });
}

function problem(content: string, oldString: string, newString = 'new'): string {
  const result = edit(content, oldString, newString);
  return result.ok ? '' : result.problem;
}

describe('applyEdit', () => {
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

  it('keeps CRLF line ends', () => {
    expect(edit('a\r\nb\r\nc\r\n', 'a\nb', 'A\nB')).toMatchObject({ content: 'A\r\nB\r\nc\r\n' });
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
