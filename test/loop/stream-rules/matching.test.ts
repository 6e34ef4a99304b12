import { describe, expect, it } from 'vitest';
import {
  checkRule,
  compileRules,
  isFileGlob,
  parseScope,
  splitTokens,
} from '../../../src/features/rules/stream/rules.ts';
import { compileGlob } from '../../../src/kernel/tools/glob-pattern.ts';
import {
  call,
  EDIT,
  finish,
  hear,
  RecordedWatch,
  ruleOf,
  SETTINGS,
  sessionOf,
  text,
  thinking,
  WRITE,
} from './helpers.ts';

const NAME = 'no-bad';

/** Rules that match, of one rule on BAD with this scope. */
function matched(
  scope: string | readonly string[],
  events: Parameters<typeof hear>[1],
  globs: readonly string[] = [],
) {
  const rule = ruleOf(NAME, 'BAD', { scope: [scope].flat(), globs });
  return hear(new RecordedWatch(sessionOf([rule], { settings: { interrupt_mode: 'never' } }), 1), [
    ...events,
    finish(),
  ]).matched;
}

const HIT = [NAME];

describe('a scope', () => {
  it('is text and every tool, but not thinking, where none is given', () => {
    expect(matched([], text('BAD'))).toEqual(HIT);
    expect(matched([], call('any_tool', { a: 'BAD' }))).toEqual(HIT);
    expect(matched([], thinking('BAD'))).toEqual([]);
  });

  it('of text leaves thinking and tools alone, and the reverse', () => {
    expect(matched('text', thinking('BAD'))).toEqual([]);
    expect(matched('text', call(WRITE, { content: 'BAD' }))).toEqual([]);
    expect(matched('thinking', text('BAD'))).toEqual([]);
    expect(matched('thinking', thinking('B', 'AD'))).toEqual(HIT);
  });

  it.each([
    'tool',
    'toolcall',
    'TOOL',
    'tool:write',
    'tool:Write',
    'write',
    'tool:rye/file-system/write',
    WRITE,
  ])('%s watches a write', (scope) => {
    expect(matched(scope, call(WRITE, { path: 'a', content: 'BAD' }))).toEqual(HIT);
  });

  it.each(['tool:edit', 'thinking', 'edit', 'tool:rite', 'tool:write(*.py)'])(
    '%s does not',
    (scope) => {
      expect(matched(scope, call(WRITE, { path: 'a.ts', content: 'BAD' }))).toEqual([]);
    },
  );

  it.each([
    ['*.ts', 'src/a.ts', true],
    ['*.ts', './src/a.ts', true],
    ['*.ts', '/home/ada/project/src/a.ts', true],
    ['*.ts', 'src\\a.ts', true],
    ['*.TS', 'src/a.ts', false],
    ['src/**/*.rs', 'src/a/b.rs', true],
    ['src/**/*.rs', '/home/ada/project/src/a/b.rs', true],
    ['src/**/*.rs', 'b.rs', false],
    ['src/**', 'src/../test/a', false],
    ['*.{ts,tsx}', 'a.tsx', true],
  ])('with the glob %s over the path %s: %s', (glob, path, expected) => {
    const events = call(WRITE, { path, content: 'BAD' });
    expect(matched(`tool:write(${glob})`, events)).toEqual(expected ? HIT : []);
    expect(matched('tool', events, [glob])).toEqual(expected ? HIT : []);
  });

  it('may name several, each with its glob', () => {
    const scope = 'text, tool:edit(*.{ts,tsx}), "tool:write(*.md)"';
    expect(matched(scope, text('BAD'))).toEqual(HIT);
    expect(matched(scope, call(EDIT, { path: 'a.tsx', new_string: 'BAD' }))).toEqual(HIT);
    expect(matched(scope, call(EDIT, { path: 'a.md', new_string: 'BAD' }))).toEqual([]);
    expect(matched(scope, call(WRITE, { path: 'a.md', content: 'BAD' }))).toEqual(HIT);
    expect(splitTokens(scope)).toEqual(['text', 'tool:edit(*.{ts,tsx})', 'tool:write(*.md)']);
  });

  it('with a token that is none drops it with a reason', () => {
    const { scope, problems } = parseScope(['text, tool:edit(*.ts, b d'], compileGlob);
    expect(scope).toMatchObject({ text: true, tools: [] });
    expect(problems).toHaveLength(1);
  });
});

describe('globs of a rule', () => {
  it('need a path: prose and calls without one never match', () => {
    expect(matched([], text('BAD'), ['**'])).toEqual([]);
    expect(matched([], call('rye_bash', { command: 'BAD' }), ['**'])).toEqual([]);
    expect(matched([], call(WRITE, { paths: ['x.py', 'y.ts'], content: 'BAD' }), ['*.ts'])).toEqual(
      HIT,
    );
  });
});

describe('a condition that is a file glob', () => {
  it.each([
    ['*.rs', true],
    ['src/**', true],
    ['a.*b', false],
    ['https?://.*', false],
    ['[a-z]', false],
    ['foo|*.rs', false],
  ])('%s: %s', (condition, expected) => {
    expect(isFileGlob(condition)).toBe(expected);
  });

  it('matches any text that is written to such a file', () => {
    const watch = () => new RecordedWatch(sessionOf([ruleOf(NAME, '*.rs')]), 1);
    expect(hear(watch(), call(WRITE, { path: 'a.rs', content: 'x' })).interrupt).toBeDefined();
    expect(hear(watch(), call(WRITE, { path: 'a.ts', content: 'x' })).interrupt).toBeUndefined();
  });
});

describe('tool arguments', () => {
  it('are matched as the text that they encode', () => {
    const rule = ruleOf(NAME, 'say\\("hi"\\);\\nnext');
    const events = call(WRITE, { path: 'a', content: 'say("hi");\nnext' }, { size: 1 });
    expect(hear(new RecordedWatch(sessionOf([rule]), 1), events).interrupt).toBeDefined();
  });

  it('are matched while they come: the answer is cut before the call is whole', () => {
    const events = call(WRITE, { path: 'a', content: `BAD ${'x'.repeat(400)}` });
    const { events: heard } = hear(new RecordedWatch(sessionOf([ruleOf(NAME, 'BAD')]), 1), events);
    expect(heard).toBeLessThan(20);
  });

  it('of one value never join pieces of another', () => {
    expect(matched('tool', call(WRITE, { a: 'B', b: 'AD' }))).toEqual([]);
    expect(
      matched('tool', [...call(WRITE, { a: 'B' }), ...call(WRITE, { a: 'AD' }, { id: 'c2' })]),
    ).toEqual([]);
    expect(matched([], [...text('B'), ...call(WRITE, { a: 'AD' })])).toEqual([]);
  });

  it('that are replaced text or a path are not matched', () => {
    expect(
      matched('tool', call(EDIT, { path: 'BAD', old_string: 'BAD', new_string: 'good' })),
    ).toEqual([]);
    expect(matched('tool', call(EDIT, { path: 'a', oldText: 'BAD', newText: 'BAD' }))).toEqual(HIT);
  });

  it('of several files are told apart', () => {
    const files = (first: string, second: string) =>
      call('multi', {
        files: [
          { path: 'a.ts', content: first },
          { path: 'b.py', content: second },
        ],
      });
    const { watcher, matched: names } = hear(
      new RecordedWatch(
        sessionOf([ruleOf(NAME, 'BAD', { globs: ['*.py'], interrupt: 'never' })]),
        1,
      ),
      [...files('x', 'BAD'), finish()],
    );
    expect(names).toEqual(HIT);
    expect(watcher.takeTriggers()).toMatchObject([{ path: 'b.py', tool: 'multi', stream: 'tool' }]);
    expect(matched('tool', files('BAD', 'x'), ['*.py'])).toEqual([]);
  });

  it('below a path of the object around them belong to it', () => {
    const edits = { edits: [{ old_string: 'x', new_string: 'BAD' }] };
    expect(matched('tool', call(EDIT, { path: 'a.ts', ...edits }), ['*.ts'])).toEqual(HIT);
    expect(matched('tool', call(EDIT, { ...edits, path: 'a.ts' }), ['*.ts'])).toEqual(HIT);
    expect(matched('tool', call(EDIT, { ...edits, path: 'a.py' }), ['*.ts'])).toEqual([]);
  });

  it('of rye_execute count as arguments of the tool that it runs, named before or after', () => {
    const parameters = { path: 'a.ts', content: 'BAD' };
    const item_id = 'rye/file-system/write';
    const orders = [
      { item_type: 'tool', item_id, parameters },
      { item_type: 'tool', parameters, item_id },
    ];
    for (const input of orders) {
      expect(matched('tool:write(*.ts)', call('rye_execute', input))).toEqual(HIT);
      expect(matched('tool:edit(*.ts)', call('rye_execute', input))).toEqual([]);
    }
  });

  it('that were not streamed are read from the finished answer', () => {
    const block = {
      type: 'tool_call',
      call_id: 'c',
      name: WRITE,
      input: { path: 'a', content: 'BAD' },
    } as const;
    const watch = () => new RecordedWatch(sessionOf([ruleOf(NAME, 'BAD')]), 1);
    expect(hear(watch(), [finish([block])]).interrupt).toBeDefined();
    expect(hear(watch(), [finish([{ type: 'text', text: 'BAD' }])]).interrupt).toBeDefined();
    const started = { type: 'toolcall_start', call_id: 'c', name: WRITE } as const;
    expect(hear(watch(), [started, finish([block])]).interrupt).toBeDefined();
  });

  it('that are torn or no JSON match nothing that was not there', () => {
    expect(matched('tool', call(WRITE, '{"content": "BA'))).toEqual([]);
    expect(matched('tool', call(WRITE, '{"content": "BAD'))).toEqual(HIT);
    expect(matched('tool', call(WRITE, 'BAD'))).toEqual([]);
  });
});

describe('compiling', () => {
  const compiled = (changes: Parameters<typeof ruleOf>[2]) =>
    compileRules([ruleOf(NAME, 'BAD', changes)], SETTINGS, compileGlob);

  it.each([
    ['an escape that nothing defines', { conditions: ['\\h'] }, /escape \\h is unknown/],
    ['a broken expression', { conditions: ['('] }, /condition \(/],
    ['no condition', { conditions: [] }, /never matches/],
    ['a scope of nothing', { scope: ['tool:edit(*.ts'] }, /nothing to watch/],
    ['globs over prose', { scope: ['text'], globs: ['*.ts'] }, /nothing to watch/],
    ['a gate that is no glob', { globs: ['/etc/*'] }, /globs:/],
    ['a broken JavaScript expression', { conditions: ['('], engine: 'js' as const }, /condition/],
  ])('refuses %s with the reason', (_, changes, reason) => {
    const { isUsable, problems } = checkRule(ruleOf(NAME, 'BAD', changes), compileGlob);
    expect(isUsable).toBe(false);
    expect(problems.join('\n')).toMatch(reason);
  });

  it('keeps the conditions that can be used', () => {
    const rule = ruleOf(NAME, 'BAD', { conditions: ['(', 'BAD'] });
    const { isUsable, problems } = checkRule(rule, compileGlob);
    expect([isUsable, problems.length]).toEqual([true, 1]);
    const { regex } = compileRules([rule], SETTINGS, compileGlob);
    expect(regex.open([0]).feed('a BAD one')).toEqual([{ rule: 0, at: 5 }]);
  });

  it('takes rules to the worker that only it can check', () => {
    expect(compiled({ conditions: ['(?=x)'], engine: 'js' }).rules).toMatchObject([
      { slow: ['(?=x)'] },
    ]);
  });
});
