import { describe, expect, it, test } from 'vitest';
import { outputModeOf, reportFailure } from '../../src/faces/cli/failure.ts';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { createFakeIo } from '../helpers/fake-io.ts';

describe('outputModeOf', () => {
  test.each([
    [['list', 'tool'], 'text'],
    [['--json', 'list'], 'json'],
    [['run', 'x', '--output-format', 'json'], 'json'],
    [['run', 'x', '--output-format=stream-json'], 'stream-json'],
    [['run', 'x', '--output-format', 'text', '--output-format', 'stream-json'], 'stream-json'],
    [['run', 'x', '--json', '--output-format', 'stream-json'], 'stream-json'],
    [['search', 'all', '--', '--json'], 'text'],
    [['run', 'x', '--output-format'], 'text'],
  ])('%j is %s', (argv, mode) => {
    expect(outputModeOf(argv)).toBe(mode);
  });
});

describe('reportFailure', () => {
  const error = new RyeError('capability_denied', 'no', { hint: 'ask', details: { id: 'x' } });

  it('prints message, code and hint for people', () => {
    const io = createFakeIo();
    expect(reportFailure(error, io, { mode: 'text', verbose: false })).toBe(4);
    expect([io.out(), io.err()]).toEqual(['', 'rye: no [capability_denied]\nhint: ask\n']);
  });

  it('draws the control characters of a hostile file name', () => {
    const io = createFakeIo();
    const named = new RyeError('usage', 'a\u001b[2Jb', { location: { path: 'x\u0007.md' } });
    reportFailure(named, io, { mode: 'text', verbose: false });
    expect(io.err()).toBe('rye: x␇.md: a␛[2Jb [usage]\n');
  });

  it('prints one document for programs', () => {
    const io = createFakeIo();
    reportFailure(error, io, { mode: 'json', verbose: false });
    expect(JSON.parse(io.out())).toEqual({
      success: false,
      error: { code: 'capability_denied', message: 'no', hint: 'ask', details: { id: 'x' } },
      warnings: [],
    });
    expect(io.err()).toBe('');
  });
});
