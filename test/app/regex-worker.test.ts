import { describe, expect, it, onTestFinished } from 'vitest';
import { RegexWorker } from '../../src/features/rules/regex-worker.ts';

function worker(): RegexWorker {
  const made = new RegexWorker();
  onTestFinished(() => made.close());
  return made;
}

describe('a regex worker', () => {
  it('finds matches that only JavaScript expressions can describe', async () => {
    const { find } = bound(worker());
    expect(
      await Promise.all([
        find('foo(?!bar)', 'foobaz'),
        find('foo(?!bar)', 'foobar'),
        find('(a)\\1', 'aa'),
      ]),
    ).toEqual([true, false, true]);
  });

  it('abandons an endless expression and continues with the next', async () => {
    const { find } = bound(worker());
    const begun = performance.now();
    const found = await Promise.all([
      find('^(a+)+$', `${'a'.repeat(40)}b`),
      find('b', 'abc'),
      find('^(a+)+$', `${'a'.repeat(40)}b`),
    ]);
    expect(found).toEqual(['timeout', true, 'timeout']);
    expect(performance.now() - begun).toBeLessThan(30_000);
  });

  it('finds nothing with an expression that is none, and lives on', async () => {
    const { find } = bound(worker());
    expect([await find('(', 'x'), await find('x', 'x')]).toEqual([false, true]);
  });
});

function bound(one: RegexWorker): Pick<RegexWorker, 'find'> {
  return { find: (expression, text) => one.find(expression, text) };
}
