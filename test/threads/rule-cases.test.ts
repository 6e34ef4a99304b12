import { existsSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import {
  calls,
  reply,
  text,
  thinking,
  toolUse,
  type WireAnswer,
  type WireScript,
  type WireStep,
} from '../helpers/wire-server.ts';

let lab: Lab;

beforeEach(async () => {
  lab = await openLab();
  onTestFinished(async () => await lab.remove());
});

const rule = (frontmatter: string, body = 'Never use that word.'): string =>
  `---\n${frontmatter}\n---\n${body}\n`;
const WORD = rule('condition: FORBIDDEN');
const MILD = rule('condition: FORBIDDEN\ninterrupt: never');
const write = (content: string, id = 'a', file = 'a.txt'): WireStep =>
  toolUse('rye_file_system_write', { path: file, content }, id);
const answer = (...steps: readonly WireStep[]): WireAnswer => ({ steps });

interface Ran {
  readonly result: ThreadResult;
  /** The messages of each request. */
  readonly told: readonly string[];
  readonly of: (type: string) => readonly Record<string, unknown>[];
}

/** Runs a directive that may write files, watched by these rules and no shipped ones. */
async function ran(
  rules: Readonly<Record<string, string>>,
  script: WireScript,
  { settings = '', request = {} }: { settings?: string; request?: object } = {},
): Promise<Ran> {
  const server = await lab.model(script);
  for (const [name, content] of Object.entries(rules)) lab.signed(`rules/${name}.md`, content);
  lab.signed('config/agent/rules.yaml', `builtin_rules: false\n${settings}`);
  lab.signed(
    'directives/job.md',
    directive('job', { permissions: '<execute><tool>rye/file-system/*</tool></execute>' }),
  );
  const result = await lab.run('job', request);
  const events: readonly (LogEvent | UnknownEvent)[] = await lab.events(result.thread_id);
  return {
    result,
    told: server.requests.map(({ body }) => JSON.stringify(body.messages)),
    of: (type) =>
      events
        .filter(({ event_type }) => event_type === type)
        .map(({ payload }) => payload as unknown as Record<string, unknown>),
  };
}

/** The names of the rules that were broken, in their order. */
const broken = ({ of }: Ran) => of('rule_matched').map((match) => match['rule']);
const wrote = (file = 'a.txt'): boolean => existsSync(path.join(lab.project, file));

describe('a rule file', () => {
  it('has one condition or a list, and the older names of its members', async () => {
    const seen = await ran(
      {
        one: rule('condition: FIRST\ninterrupt: never'),
        list: rule('condition: [SECOND, THIRD]\ninterrupt: never'),
        older: rule('ttsrTrigger: FOURTH\ninterruptMode: never'),
      },
      [reply('FIRST and THIRD and FOURTH.'), reply('Done.')],
    );
    expect(new Set(broken(seen))).toEqual(new Set(['list', 'older', 'one']));
    expect(seen.of('rule_matched').map((match) => match['interrupted'])).toEqual([
      false,
      false,
      false,
    ]);
  });

  it('whose scope watches nothing is a warning, and threads run without it', async () => {
    const files = { none: rule('condition: x\nscope: text\nglobs: ["*.py"]'), word: WORD };
    const seen = await ran(files, [reply('FORBIDDEN'), reply('Fine.')]);
    expect(seen.result).toMatchObject({ status: 'completed', result: 'Fine.' });
    const { rules } = await lab.rye().rules.list();
    const none = rules.find(({ name }) => name === 'none');
    expect(none).toMatchObject({ bucket: 'unused', problems: [expect.any(String)] });
  });

  it('is dropped by disabled_rules, with spaces around its name, and shipped ones by builtin_rules', async () => {
    const settings = 'disabled_rules: [" word "]\n';
    const seen = await ran({ word: WORD }, [reply('FORBIDDEN')], { settings });
    expect(seen.result.result).toBe('FORBIDDEN');
    const { rules } = await lab.rye().threads.plan({ directiveId: 'job' });
    expect(rules?.stream).toEqual([]);
  });

  it('reaches the model as it was written, in its envelope', async () => {
    const body = 'Use `Array<string>` && "x".';
    const { told } = await ran({ word: rule('condition: FORBIDDEN', body) }, [
      reply('FORBIDDEN'),
      reply('Fine.'),
    ]);
    expect(told[1]).toContain(JSON.stringify(body).slice(1, -1));
    expect(told[1]).toMatch(/<system-interrupt reason=\\"rule_violation\\" rule=\\"word\\"/);
  });

  it('is one of two hundred, and all of them watch', async () => {
    const names = Array.from({ length: 200 }, (_, index) => `r${index}`);
    const files = Object.fromEntries(names.map((name) => [name, rule(`condition: WORD-${name}-`)]));
    const seen = await ran(files, [reply('WORD-r7-'), reply('WORD-r199-'), reply('Fine.')]);
    expect(seen.result).toMatchObject({ status: 'completed', result: 'Fine.' });
    expect(broken(seen)).toEqual(['r7', 'r199']);
  });
});

describe('a rule watches', () => {
  it.each<[string, WireAnswer, string]>([
    ['text', answer(text('FORB', 'IDDEN')), 'text'],
    ['thinking', answer(thinking('FORBIDDEN'), text('Well.')), 'thinking'],
    ['calls', calls(write('FORBIDDEN')), 'tool'],
  ])('%s', async (_, first, stream) => {
    const seen = await ran({ word: rule('condition: FORBIDDEN\nscope: text, thinking, tool') }, [
      first,
      reply('Fine.'),
    ]);
    expect(seen.of('rule_matched')).toMatchObject([{ stream, interrupted: true }]);
    expect(wrote()).toBe(false);
  });

  it('text and tools by default, and no thinking', async () => {
    const seen = await ran({ word: WORD }, [
      answer(thinking('FORBIDDEN'), write('FORBIDDEN')),
      answer(thinking('FORBIDDEN'), text('Fine.')),
    ]);
    expect(seen.of('rule_matched')).toMatchObject([{ stream: 'tool' }]);
    expect(seen.result.result).toBe('Fine.');
  });

  it.each([
    ['tool:write(*.py)', 'a.py', 'a.txt'],
    ['tool:rye/file-system/write(src/**)', 'src/a.txt', 'b.txt'],
    ['write', 'a.txt', ''],
  ])('the calls of the scope %s', async (scope, hit, miss) => {
    const files = { word: rule(`condition: FORBIDDEN\nscope: ${scope}\ninterrupt: never`) };
    const batch = [hit, miss].filter(Boolean).map((file) => write('FORBIDDEN', file, file));
    const seen = await ran(files, [answer(text('FORBIDDEN'), ...batch), reply('Done.')]);
    expect(seen.of('rule_matched').map((match) => match['path'])).toEqual([hit]);
  });

  it('the files of a glob that is its condition', async () => {
    const seen = await ran({ rust: rule('condition: "*.rs"\ninterrupt: never') }, [
      calls(write('fn main() {}', 'a', 'a.rs'), write('x', 'b', 'b.txt')),
      reply('Done.'),
    ]);
    expect(seen.of('rule_matched')).toMatchObject([{ rule: 'rust', path: 'a.rs' }]);
  });

  it('only calls that name a path of its globs, and no prose', async () => {
    const files = { word: rule('condition: FORBIDDEN\nglobs: ["*.py"]') };
    const seen = await ran(files, [
      answer(text('FORBIDDEN'), write('FORBIDDEN')),
      calls(write('FORBIDDEN', 'b', 'b.py')),
      reply('Fine.'),
    ]);
    expect(seen.of('rule_matched')).toMatchObject([{ path: 'b.py' }]);
    expect([wrote('a.txt'), wrote('b.py')]).toEqual([true, false]);
  });

  it('each answer alone: two never join', async () => {
    const seen = await ran({ word: WORD }, [answer(text('FORB'), write('FORB')), reply('IDDEN')]);
    expect(seen.result.result).toBe('IDDEN');
    expect(broken(seen)).toEqual([]);
  });

  it('the text that arguments encode, also where its escapes are cut, and before their path', async () => {
    const chunks = ['{"content":"FORB\\u00', '49DDEN \\ud83d', '\\ude00","path":"a.py"}'];
    const step: WireStep = { kind: 'tool', name: 'rye_file_system_write', id: 'a', chunks };
    const files = { word: rule('condition: FORBIDDEN 😀\nglobs: ["*.py"]') };
    const seen = await ran(files, [answer(step), reply('Fine.')]);
    expect(seen.of('rule_matched')).toMatchObject([{ stream: 'tool', path: 'a.py' }]);
    expect(wrote('a.py')).toBe(false);
  });

  it('letters of any script, in pieces and in any case', async () => {
    const files = { word: rule('condition: "(?i)größe 😀"') };
    const seen = await ran(files, [answer(text('die GRÖ', 'ßE \ud83d\ude00')), reply('Fine.')]);
    expect(broken(seen)).toEqual(['word']);
  });

  it('a long answer with an expression that would backtrack for ever', async () => {
    const files = { slow: rule('condition: "(a+)+b$"') };
    const seen = await ran(files, [reply('a'.repeat(30_000))]);
    expect(seen.result.status).toBe('completed');
    expect(broken(seen)).toEqual([]);
  });
});

describe('an interrupt', () => {
  it('runs neither the call that broke the rule nor one that was finished before it', async () => {
    const seen = await ran({ word: WORD }, [
      calls(write('fine', 'a', 'a.txt'), write('FORBIDDEN', 'b', 'b.txt')),
      reply('Fine.'),
    ]);
    expect([wrote('a.txt'), wrote('b.txt')]).toEqual([false, false]);
    expect(seen.of('tool_call_start')).toEqual([]);
  });

  it('asks again at once, without the cut answer', async () => {
    const seen = await ran({ word: WORD }, [reply('This is FORBIDDEN text.'), reply('Fine.')]);
    expect(seen.told).toHaveLength(2);
    expect(seen.told[1]).not.toContain('This is');
    expect(seen.told[1]).toContain('Never use that word.');
    expect(seen.result).toMatchObject({ result: 'Fine.' });
  });

  it('leaves the cut answer in view with context_mode: keep', async () => {
    const seen = await ran({ word: WORD }, [reply('This is FORBIDDEN text.'), reply('Fine.')], {
      settings: 'context_mode: keep\n',
    });
    expect(seen.told[1]).toContain('This is FORBIDDEN');
  });

  it('tells every rule that the answer broke, the mild ones too, in their order', async () => {
    const seen = await ran(
      { 'a-mild': rule('condition: SOFT\ninterrupt: never', 'Be hard.'), 'b-word': WORD },
      [reply('SOFT and FORBIDDEN'), reply('Fine.')],
    );
    expect(broken(seen)).toEqual(['a-mild', 'b-word']);
    expect(seen.told).toHaveLength(2);
    expect(seen.told[1]).toMatch(/Be hard\..*Never use that word\./s);
  });

  it.each([
    ['prose-only', 'Fine.', true],
    ['tool-only', 'FORBIDDEN', false],
  ])('with %s cuts prose or calls alone', async (interrupt, _, cutsProse) => {
    const files = {
      word: rule(`condition: FORBIDDEN\ninterrupt: ${interrupt}\nrepeat: after-gap\ngap: 0`),
    };
    const seen = await ran(files, [reply('FORBIDDEN'), calls(write('FORBIDDEN')), reply('Fine.')]);
    const cuts = seen.of('rule_matched').map((match) => [match['stream'], match['interrupted']]);
    expect(cuts).toEqual([
      ['text', cutsProse],
      ['tool', !cutsProse],
    ]);
    expect(wrote()).toBe(cutsProse);
  });
});

describe('a reminder', () => {
  it('of prose is a hidden message after the whole answer', async () => {
    const seen = await ran({ mild: MILD }, [reply('FORBIDDEN but whole.'), reply('Fine.')]);
    expect(seen.told[1]).toMatch(/FORBIDDEN but whole\..*Never use that word\./s);
    expect(seen.of('custom_message')).toMatchObject([{ display: false }]);
    expect(seen.result.result).toBe('Fine.');
  });

  it('of a call comes before its result, which stays as it is, and costs no turn', async () => {
    const seen = await ran({ mild: MILD }, [calls(write('FORBIDDEN')), reply('Fine.')]);
    expect(seen.told).toHaveLength(2);
    expect(wrote()).toBe(true);
    expect(seen.told[1]).toMatch(
      /<system-reminder .*Never use that word\..*<\/system-reminder>.*Created/s,
    );
  });

  it('of calls that break one rule is given with one of them', async () => {
    const seen = await ran({ mild: MILD }, [
      calls(write('FORBIDDEN', 'a', 'a.txt'), write('FORBIDDEN', 'b', 'b.txt')),
      reply('Fine.'),
    ]);
    expect(seen.told[1]?.match(/<system-reminder/g)).toHaveLength(1);
    expect([wrote('a.txt'), wrote('b.txt')]).toEqual([true, true]);
  });
});

describe('a rule that was told', () => {
  it.each([
    ['once', 1],
    ['after-gap, gap 2', 2],
  ])('is told again as its repeat asks: %s', async (repeat, times) => {
    const files = {
      word: rule(
        `condition: FORBIDDEN\ninterrupt: never\nrepeat: ${repeat.replace(', gap', '\ngap:')}`,
      ),
    };
    const forbidden = (id: string) => calls(write('FORBIDDEN', id, `${id}.txt`));
    const seen = await ran(files, ['a', 'b', 'c'].map(forbidden).concat(reply('Fine.')));
    expect(seen.told.at(-1)?.match(/<system-reminder/g)).toHaveLength(times);
  });

  it('was not told if its answer failed: it may match again', async () => {
    const seen = await ran({ mild: MILD }, [
      answer(text('FORBIDDEN'), { kind: 'reset' }),
      reply('FORBIDDEN again'),
      reply('Fine.'),
    ]);
    expect(seen.told.at(-1)).toContain('Never use that word.');
    expect(seen.result.result).toBe('Fine.');
  });
});

describe('rules also watch', () => {
  it('children', async () => {
    lab.signed('directives/child.md', directive('child'));
    const server = await lab.model(({ index, body }) => {
      if (index === 0)
        return calls(toolUse('rye_execute', { item_type: 'directive', item_id: 'child' }, 'a'));
      const said = JSON.stringify(body.messages);
      if (said.includes('tool_result')) return reply('Done.');
      return reply(said.includes('Never use that word.') ? 'Fine.' : 'FORBIDDEN');
    });
    lab.signed('rules/word.md', WORD);
    lab.signed(
      'directives/job.md',
      directive('job', { permissions: '<execute><directive>child</directive></execute>' }),
    );
    const result = await lab.run('job');
    expect(result).toMatchObject({ status: 'completed', result: 'Done.' });
    const [child = ''] = result.children;
    const events = await lab.events(child);
    expect(events.some(({ event_type }) => event_type === 'rule_injection')).toBe(true);
    expect(server.requests).toHaveLength(4);
  });

  it('results that must match a schema, and the schema holds after the cut', async () => {
    const schema = { type: 'object', properties: { word: { type: 'string' } }, required: ['word'] };
    const seen = await ran(
      { word: WORD },
      [reply('{"word":"FORBIDDEN"}'), reply('{"word":"fine"}')],
      { request: { outputSchema: schema, behavior: { schema } } },
    );
    expect(broken(seen)).toEqual(['word']);
    expect(seen.result).toMatchObject({ status: 'completed', outputs: { word: 'fine' } });
  });
});
