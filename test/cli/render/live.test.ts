import { describe, expect, it } from 'vitest';
import { createColors } from '../../../src/faces/ui/colors.ts';
import { createLiveRenderer } from '../../../src/faces/ui/render/live.ts';
import { createLiveView, type LiveViewOptions } from '../../../src/faces/ui/render/live-view.ts';
import { progressLine } from '../../../src/faces/ui/render/progress-line.ts';
import { createTextRenderer } from '../../../src/faces/ui/render/text.ts';
import { ESCAPE } from '../../../src/faces/ui/terminal-text.ts';
import type { LogEvent, UnknownEvent } from '../../../src/kernel/core/events.ts';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import type { ToolOutcome } from '../../../src/kernel/core/message.ts';
import { NO_COST, NO_USAGE } from '../../../src/kernel/core/usage.ts';
import { wordCustomEntries } from '../../../src/kernel/log/account.ts';
import { createFakeIo, type FakeIo } from '../../helpers/fake-io.ts';
import { screenOf } from '../../helpers/screen.ts';
import { assistantMessage, COMPLETED, event, LIMITED, STARTED } from '../events.ts';

const COLORS = createColors(false);

function show(events: readonly LogEvent[], result = COMPLETED, stdoutIsTty = true): FakeIo {
  const io = createFakeIo({ stdoutIsTty, stderrIsTty: true, columns: 100 });
  const options = { colors: COLORS, isVerbose: false, folder: undefined, hasFrame: true };
  const renderer = createLiveRenderer(io, options);
  for (const one of events) renderer.event(one);
  renderer.finish(result);
  return io;
}

interface Shown {
  readonly screen: () => readonly string[];
  readonly show: (...events: readonly (LogEvent | UnknownEvent)[]) => readonly string[];
  readonly view: ReturnType<typeof createLiveView>;
  readonly output: () => string;
}

/** A view whose clock passes 1 ms at each look. */
function viewOf(options: Partial<LiveViewOptions> & { columns?: number } = {}): Shown {
  const { columns = 80, ...rest } = options;
  const io = createFakeIo({ stdoutIsTty: true, columns, rows: 30 });
  let now = 0;
  const view = createLiveView({
    io: { ...io, monotonic: () => (now += 1) },
    sink: io.stdout,
    colors: COLORS,
    ...rest,
  });
  const screen = (): readonly string[] => screenOf(io.out());
  return {
    view,
    screen,
    output: io.out,
    show: (...events) => {
      for (const one of events) view.event(one);
      view.redraw();
      return screen();
    },
  };
}

function calling(...calls: readonly (readonly [id: string, name: string, input: JsonObject])[]) {
  const message = assistantMessage('').payload as { message: { content: object[] } };
  message.message.content = calls.map(([call_id, name, input]) => ({
    type: 'tool_call',
    call_id,
    name,
    input,
  }));
  return { ...assistantMessage(''), payload: message } as LogEvent;
}

function settled(
  call_id: string,
  outcome: ToolOutcome,
  more: { readonly tool?: string; readonly reason?: string } = {},
): LogEvent {
  const payload = { call_id, tool: 'rye/bash', outcome, duration_ms: 8, output_bytes: 1, ...more };
  return event('tool_settled', payload);
}

function answered(call_id: string, text: string, data: JsonObject = {}): LogEvent {
  return event('message', {
    message: {
      role: 'tool_result',
      call_id,
      name: 'x',
      content: [{ type: 'text', text }],
      outcome: 'ok',
      data,
    },
  });
}

/** Control sequences of the drawing itself. */
const DRAWING = new RegExp(`${ESCAPE}\\[(?:\\?25[lh]|\\?2026[lh]|\\d*[ABCJK])`, 'g');

const DELTAS = ['Hello,', ' **Ada**.'].map((text) => event('token_delta', { text }));

it('shows all lines of a plug-in about its entry, and none as a control', () => {
  wordCustomEntries({ 'one/live': () => ['a board', 'row 1', '\u001b[2Jrow 2'] });
  const { show: see, output } = viewOf();
  const lines = see(STARTED, event('custom', { custom_type: 'one/live', data: {} })).join('\n');
  expect(lines).toMatch(/· a board\n {4}row 1\n {4}.*row 2/);
  expect(output()).not.toContain('\u001b[2J');
});

describe('waits for a provider', () => {
  const problem = event('error_classified', {
    category: 'transient',
    retryable: true,
    message: 'Overloaded',
    status: 529,
  });
  const retry = (attempt: number, delay_ms: number): LogEvent =>
    event('retry_scheduled', { attempt, delay_ms, policy: 'use_header', reason: 'overloaded' });
  const estimate = { provider: 'p', model: 'm', input_tokens: 1, max_tokens: 1 };

  it('count down in place of the meters, and leave one line', () => {
    const { show: see } = viewOf();
    const waiting = see(
      STARTED,
      event('turn_started', { turn: 1 }),
      problem,
      retry(1, 1500),
      problem,
      retry(2, 12_000),
    );
    expect(waiting.at(-1)).toBe('overloaded, retry 2 in 12 s (Ctrl-C to stop)');
    expect(waiting.join('\n')).not.toMatch(/Overloaded|retry 1/);
    const asking = see(event('request_started', { turn: 1, purpose: 'retry', request: estimate }));
    expect(asking.at(-1)).toContain('turn 1');
    const spoken = see(event('token_delta', { text: 'Hello' })).join('\n');
    expect(spoken).toMatch(/! overloaded for 0 s, 2 retries\n[^]*Hello/);
    expect(spoken).not.toContain('Overloaded');
  });

  it('fit a narrow terminal and never count below zero', () => {
    const { show: see } = viewOf({ columns: 60 });
    expect(see(STARTED, event('turn_started', { turn: 1 }), problem, retry(3, 0)).at(-1)).toBe(
      'overloaded, retry 3 in 0 s (Ctrl-C to stop)',
    );
  });
});

describe('live renderer', () => {
  it('shows the header, the text once and the outcome with the next command', () => {
    const io = show([STARTED, ...DELTAS, assistantMessage('Hello, **Ada**.')], {
      ...COMPLETED,
      result: 'Hello, **Ada**.',
    });
    expect(screenOf(io.out())).toEqual([
      'hello · large · limit 25 turns, $5.00 · hello-1',
      '',
      '  Hello, Ada.',
      '',
      '✓ 1 turn · 900 tokens · $0.0125 · 1.5s        open: rye threads open hello-1',
      '',
    ]);
    expect(io.err()).toBe('');
  });

  it('shows a message that came without deltas', () => {
    expect(screenOf(show([assistantMessage('Hello, Ada.')]).out())).toContain('  Hello, Ada.');
  });

  it('prints a result that was not the last message', () => {
    const io = show([assistantMessage('working')], { ...COMPLETED, result: 'done' });
    expect(screenOf(io.out())).toEqual(expect.arrayContaining(['  working', 'done']));
  });

  it('keeps stdout for the result when it is a pipe, and does not repeat the result on stderr', () => {
    const io = show(
      [
        ...DELTAS,
        assistantMessage('between'),
        event('turn_started', { turn: 2 }),
        assistantMessage('Hello, Ada.'),
      ],
      COMPLETED,
      false,
    );
    expect(io.out()).toBe('Hello, Ada.\n');
    expect(screenOf(io.err())).toContain('  between');
    expect(screenOf(io.err()).join('\n')).not.toContain('Hello, Ada.');
  });

  it('prints why a thread failed, and the next command last', () => {
    const io = show([], LIMITED);
    expect(io.err()).toContain(
      'rye: all 25 turns are used [limit_turns]\nhint: Raise --limit turns.\n',
    );
    expect(screenOf(io.out())).toContain(
      '■ stopped at the turn limit · 1 turn · 900 tokens · $0.0125 · 1.5s',
    );
  });

  it('prints once why a step was refused, at the end', () => {
    const reason = 'Bob is not greeted';
    const failed = {
      ...LIMITED,
      error: { code: 'tool_failed' as const, message: `step "greet": ${reason}` },
    };
    const io = show(
      [
        calling(['a', 'rye_core_greet', { who: 'Bob' }]),
        settled('a', 'blocked', { tool: 'rye/core/greet', reason }),
        answered('a', `Blocked: ${reason}`),
        event('turn_started', { turn: 2 }),
        event('error_classified', { category: 'permanent', retryable: false, message: reason }),
      ],
      failed,
    );
    const screen = screenOf(io.out()).join('\n');
    expect(screen).toMatch(/✗ rye\/core\/greet Bob +refused +8ms/);
    expect(screen).not.toContain(reason);
    expect(io.err()).toBe(`rye: step "greet": ${reason} [tool_failed]\n`);
  });

  it.each([true, false])(
    'shows a message that a person sent while it runs (terminal: %s)',
    (isTty) => {
      const content = [
        '<delivery marker="7f3a" kind="steer" from="user">',
        'A message from the person who runs this thread.',
        'Look at &lt;b> first.',
        '</delivery marker="7f3a">',
      ].join('\n');
      const delivered = event('custom_message', {
        custom_type: 'delivery',
        content,
        display: true,
      });
      const io = createFakeIo({ stdoutIsTty: isTty, stderrIsTty: isTty });
      const options = { colors: COLORS, isVerbose: false, folder: undefined, hasFrame: true };
      const renderer = isTty
        ? createLiveRenderer(io, options)
        : createTextRenderer(io, COLORS, false);
      renderer.event(delivered);
      renderer.close();
      const shown = isTty ? screenOf(io.out()) : io.err().split('\n');
      expect(shown.map((line) => line.replace(/ +/g, ' '))).toContain(
        '› Look at <b> first. (delivered)',
      );
    },
  );

  it('prints outputs below the calls: a list of objects as a table, a text of several lines as it is', () => {
    const summaries = [
      { thread_id: 'leaf-1', result: '', outputs: { summary: 'about rye' }, cost: { spend: 0.01 } },
      { thread_id: 'leaf-2', result: '', outputs: { summary: 'about wheat' }, error: null },
    ];
    const outputs = { summaries, count: 2, text: 'one\n  two', plain: ['a', 'b'], none: [] };
    const io = show([calling(['a', 'rye_directive_return', {}])], { ...COMPLETED, outputs });
    expect(screenOf(io.out()).slice(0, -2)).toEqual([
      '',
      'summaries:',
      '  thread_id  outputs.summary  cost.spend',
      '  leaf-1     about rye        0.01',
      '  leaf-2     about wheat',
      'count: 2',
      'text:',
      '  one',
      '    two',
      'plain: ["a","b"]',
      'none: []',
      '',
    ]);
  });
});

describe('live view', () => {
  it('keeps the meters below streaming text', () => {
    const { show: see } = viewOf();
    const request = {
      provider: 'acme',
      model: 'large',
      input_tokens: 500,
      max_tokens: 10,
      context_window: 1000,
    };
    const screen = see(STARTED, event('turn_started', { turn: 2, request }), ...DELTAS);
    expect(screen).toContain('  Hello, Ada.');
    expect(screen.at(-1)).toMatch(
      /^. turn 2 of 25 · \$0\.00 of \$5\.00 · 0s · context 50% · 0 tokens$/,
    );
  });

  it('rewrites parallel calls in place, in their order, and finishes them with a short outcome', () => {
    const { show: see } = viewOf();
    const open = see(
      calling(
        ['a', 'rye_bash', { command: 'make' }],
        ['b', 'rye_file_system_read', { path: 'x.js' }],
      ),
      settled('b', 'ok', { tool: 'rye/file-system/read' }),
    );
    expect(open.filter((line) => line.startsWith('  '))).toEqual([
      expect.stringMatching(/^ {2}○ bash make$/),
      expect.stringMatching(/^ {2}● read x\.js +ok +8ms$/),
    ]);
    const done = see(
      event('tool_call_progress', { call_id: 'a', text: 'one\ntwo\n' }),
      settled('a', 'ok'),
      answered('a', '', { exit_code: 0, output: 'one\ntwo\n' }),
      answered('b', '', { lines: 2 }),
    );
    expect(done.filter((line) => line.startsWith('  '))).toEqual([
      expect.stringMatching(/^ {2}● bash make +2 lines +8ms$/),
      expect.stringMatching(/^ {2}● read x\.js +2 lines +8ms$/),
    ]);
  });

  it('names a call by the ID of its item, and hides the return of the outputs unless it fails', () => {
    const { show: see } = viewOf();
    const start = { call_id: 'a', name: 'notes_word_count', input: { path: 'a.txt' }, turn: 1 };
    const screen = see(
      calling(
        ['a', 'notes_word_count', { path: 'a.txt' }],
        ['b', 'rye_directive_return', { count: 'two' }],
        ['c', 'rye_directive_return', { count: 2 }],
      ),
      event('tool_call_start', { ...start, tool: 'notes/word_count' }),
      settled('b', 'invalid', { tool: 'rye_directive_return', reason: 'count: must be integer' }),
      settled('c', 'ok', { tool: 'rye_directive_return' }),
      answered('b', ''),
      answered('c', ''),
    );
    expect(screen.slice(0, 4)).toEqual([
      '  ◐ notes/word_count a.txt',
      expect.stringMatching(/^ {2}✗ directive_return two +invalid arguments 8ms$/),
      '    count: must be integer',
      '',
    ]);
  });

  it('tells running from queued calls, and counts the time of each from its start', () => {
    const input = (file: string): JsonObject => ({
      item_type: 'directive',
      item_id: 'leaf',
      parameters: { file },
    });
    const { show: see } = viewOf();
    const screen = see(
      STARTED,
      calling(['a', 'rye_execute', input('a.txt')], ['b', 'rye_execute', input('b.txt')]),
      event('tool_call_start', {
        call_id: 'a',
        tool: 'rye/execute',
        name: 'rye_execute',
        input: input('a.txt'),
        turn: 1,
      }),
      event('child_thread_started', { child_thread_id: 'leaf-1', directive: 'leaf' }),
      {
        ...event('cost', { turn: 1, usage: NO_USAGE, total: { ...NO_COST, spend: 0.25 } }),
        thread_id: 'leaf-1',
        event_type: 'child.cost',
      } as UnknownEvent,
    );
    expect(screen.slice(2, 4)).toEqual([
      expect.stringMatching(/^ {2}◐ leaf a\.txt +starting$/),
      expect.stringMatching(/^ {2}○ leaf b\.txt +queued$/),
    ]);
    expect(screen.at(-1)).toContain('turn 0 of 25 · $0.25 of $5.00');
  });

  it('shows the input that ran where a person gave another one', () => {
    const edit = (...words: readonly string[]): JsonObject => ({
      path: 'a.txt',
      edits: words.map((word) => ({ old_string: word, new_string: word.toUpperCase() })),
    });
    const name = 'rye_file_system_multi_edit';
    const tool = 'rye/file-system/multi_edit';
    const { show: see } = viewOf();
    const screen = see(
      STARTED,
      calling(['a', name, edit('one', 'two')]),
      event('tool_call_start', { call_id: 'a', tool, name, input: edit('two'), turn: 1 }),
      event('tool_settled', {
        call_id: 'a',
        tool,
        outcome: 'ok',
        duration_ms: 1,
        output_bytes: 1,
      }),
      event('message', {
        message: {
          role: 'tool_result',
          call_id: 'a',
          name,
          outcome: 'ok',
          content: [],
          data: { replacements: 1 },
        },
      }),
    ).join('\n');
    expect(screen).toContain('+ TWO');
    expect(screen).not.toContain('+ ONE');
  });

  it('shows wrong arguments on one line', () => {
    const problems = ['- old_text: is not a parameter', '- new_text: is not a parameter'];
    const reason = [...problems, '- and 3 more', 'Parameters: path, edits'].join('\n');
    const call = { call_id: 'a', tool: 'rye/file-system/edit', output_bytes: 0, duration_ms: 0 };
    const settle = event('tool_settled', { ...call, outcome: 'invalid', reason });
    const { show: see } = viewOf();
    const screen = see(
      calling(['a', 'rye_file_system_edit', { path: 'a' }]),
      settle,
      answered('a', reason),
    );
    expect(screen.slice(1, 3)).toEqual(['    old_text: is not a parameter (and 4 more)', '']);
    expect(progressLine(settle)?.text).toBe(
      '✗ rye/file-system/edit invalid 0ms: old_text: is not a parameter (and 4 more)',
    );
  });

  it('shows the last lines of a running command, without its control codes', () => {
    const { show: see } = viewOf();
    const text = `${Array.from({ length: 9 }, (_, at) => `line ${at}`).join('\n')}\n10%\r90%\u001b[2J`;
    const screen = see(
      calling(['a', 'rye_bash', { command: 'make' }]),
      event('tool_call_progress', { call_id: 'a', text }),
    );
    expect(screen.filter((line) => line.includes('│'))).toEqual(
      ['line 5', 'line 6', 'line 7', 'line 8', '90%'].map((line) => `    │ ${line}`),
    );
  });

  it('names the hook that refused a call', () => {
    const { show: see } = viewOf();
    const hook = { id: 'protect_env', layer: 1, event: 'tool_gate', matched: true, duration_ms: 1 };
    const screen = see(
      calling(['a', 'rye_file_system_read', { path: '.env' }]),
      event('hook_fired', { ...hook, outcome: 'fail' }),
      settled('a', 'blocked', { reason: '.env files are private', tool: 'rye/file-system/read' }),
      answered('a', 'Blocked: .env files are private'),
    );
    expect(screen).toContain('    hook protect_env: .env files are private');
    expect(screen.join('\n')).toMatch(/✗ read \.env +refused/);
  });

  it('shows at most twelve lines of a diff', () => {
    const { show: see } = viewOf();
    const content = Array.from({ length: 30 }, (_, at) => `line ${at}`).join('\n');
    const screen = see(
      calling(['a', 'rye_file_system_write', { path: 'x', content }]),
      settled('a', 'ok', { tool: 'rye/file-system/write' }),
      answered('a', '', { status: 'created' }),
    );
    expect(screen.filter((line) => line.startsWith('    +'))).toHaveLength(12);
    expect(screen).toContain('    … 18 more lines');
  });

  it('compares a written file with its content before', () => {
    const { show: see } = viewOf({ readFile: () => 'a\nb\n' });
    const input = { path: 'x', content: 'a\nB\n' };
    const screen = see(
      calling(['a', 'rye_file_system_write', input]),
      event('tool_call_start', {
        call_id: 'a',
        tool: 'rye/file-system/write',
        name: 'rye_file_system_write',
        input,
        turn: 1,
      }),
      settled('a', 'ok', { tool: 'rye/file-system/write' }),
      answered('a', '', { status: 'updated' }),
    );
    expect(screen.filter((line) => /^ {4}[-+ ]/.test(line))).toEqual([
      '      a',
      '    - b',
      '    + B',
    ]);
  });

  it('shows a child on the line of its call, with its inputs, status and cost', () => {
    const { show: see } = viewOf({ columns: 100 });
    const input = { item_type: 'directive', item_id: 'sum', parameters: { file: 'a.txt' } };
    const child = (type: string, payload: JsonObject): UnknownEvent => ({
      ...event('note', { text: '' }),
      thread_id: 'sum-1',
      event_type: `child.${type}`,
      payload,
    });
    const running = see(
      calling(['a', 'rye_execute', input]),
      event('child_thread_started', { child_thread_id: 'sum-1', directive: 'sum' }),
      child('turn_started', { turn: 2 }),
    );
    expect(running.join('\n')).toMatch(/◐ sum a\.txt +turn 2/);
    const ended = see(
      event('child_thread_finished', {
        child_thread_id: 'sum-1',
        status: 'completed',
        spend: 0.0004,
      }),
      settled('a', 'ok'),
      answered('a', ''),
    );
    expect(ended.join('\n')).toMatch(/✓ sum a\.txt +completed +\d+ms +\$0\.0004/);
    expect(ended.filter((line) => line.includes('sum a.txt'))).toHaveLength(1);
  });

  it('folds thinking, and shows it with --verbose', () => {
    const thought = [event('thinking_delta', { text: 'Why not?' }), ...DELTAS];
    expect(
      viewOf()
        .show(...thought)
        .join('\n'),
    ).toMatch(/▸ thought for \d+ms\n\n {2}Hello/);
    expect(
      viewOf({ isVerbose: true })
        .show(...thought)
        .join('\n'),
    ).toContain('    Why not?');
  });

  it('draws nothing that the text of a model, a file or a tool could inject', () => {
    const { show: see, output, view } = viewOf();
    const evil = '\u001b]0;owned\u0007x\u001b[31m &#27;[2J \u009b2J';
    see(
      event('token_delta', { text: evil }),
      assistantMessage(evil),
      calling(['a', `rye_bash${evil}`, { command: evil }]),
      event('tool_call_progress', { call_id: 'a', text: evil }),
      settled('a', 'error', { reason: evil }),
      answered('a', evil),
      event('note', { text: evil }),
    );
    view.close();
    const rest = output().replaceAll(DRAWING, '');
    for (const control of ['\u001b', '\u009b', '\u0007']) expect(rest).not.toContain(control);
  });

  it('keeps a footer with the cursor below the meters', () => {
    const { show: see, view, screen, output } = viewOf();
    view.setFooter({ lines: ['> hi'], cursor: { row: 0, column: 4 } });
    see(STARTED, ...DELTAS);
    expect(screen().at(-1)).toBe('> hi');
    view.settle();
    expect(screen().at(-1)).toBe('> hi');
    expect(output()).not.toContain('\u001b[?25l');
    view.close();
    expect(screen().join('\n')).not.toContain('> hi');
  });

  it('fits every line of the live area into 20 columns', () => {
    const { show: see } = viewOf({ columns: 20, hasHeader: false });
    const screen = see(
      ...DELTAS,
      calling(['a', 'rye_file_system_read', { path: 'a/very/long/path.ts' }]),
      settled('a', 'ok', { tool: 'rye/file-system/read' }),
      answered('a', '', { lines: 2 }),
      event('turn_started', { turn: 1 }),
    );
    expect(screen.filter((line) => line.length > 20)).toEqual([]);
    expect(screen.join('\n')).toContain('2 lines');
  });
});

it('keeps the colors of rye and draws every other sequence', () => {
  const { view, output } = viewOf();
  view.print([
    '\u001b[31mred\u001b[39m \u001b[8mhidden \u001b[30;40m\u001b]52;c;eA==\u0007\u009b\u202e',
  ]);
  expect(output()).toContain(
    '\u001b[31mred\u001b[39m ␛[8mhidden ␛[30;40m␛]52;c;eA==␇\\u{9b}\\u{202e}\n',
  );
});
