import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import { displayWidth } from '../../../src/faces/ui/terminal-text.ts';
import type { LogProblem } from '../../../src/kernel/log/codec.ts';
import { openRye } from '../../../src/open-rye.ts';
import { directive, type Lab, openLab } from '../../attacks/lab.ts';
import { createFakeIo } from '../../helpers/fake-io.ts';
import { calls, reply, toolUse, type WireServer } from '../../helpers/wire-server.ts';

let lab: Lab;
let server: WireServer;

beforeEach(async () => {
  lab = await openLab();
  writeFileSync(path.join(lab.project, 'a.txt'), 'content of a\n');
  server = await lab.model(({ body }) => {
    const request = JSON.stringify([body.system ?? '', body.messages]);
    if (request.includes('You summarize part of the record')) return reply('THE SUMMARY');
    if (!request.includes('"tool_result"')) {
      return calls(toolUse('rye_file_system_read', { path: 'a.txt' }, 'toolu_1'));
    }
    return reply(`Answer ${body.messages.length}.`);
  });
  lab.signed(
    'directives/work.md',
    directive('work', {
      permissions: '<execute><tool>rye/file-system/*</tool></execute>',
      limits: 'turns="10" spend="1.00"',
      metadata: '<model id="claude-haiku-5-5" provider="anthropic" />',
    }),
  );
});
afterEach(async () => await lab.remove());

interface Output {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs a command line in this process on the real project. */
async function rye(...args: readonly string[]): Promise<Output> {
  const io = createFakeIo({ cwd: lab.project, env: { ...lab.env, HOME: lab.home } });
  const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
  const code = await main(args, { ...io, env: { ...io.env, HOME: lab.home }, openRye: open });
  return { code, out: io.out(), err: io.err() };
}

async function json(...args: readonly string[]): Promise<Record<string, unknown>> {
  const { out } = await rye('--json', ...args);
  return JSON.parse(out) as Record<string, unknown>;
}

interface Entry {
  readonly id: string;
  readonly kind: string;
  readonly text: string;
  readonly leaf: boolean;
  readonly label: string | null;
}

async function entries(id: string, ...options: readonly string[]): Promise<readonly Entry[]> {
  return (await json('threads', 'entries', id, ...options))['entries'] as readonly Entry[];
}

/** A finished thread: a question, a call, its result, an answer. */
async function thread(): Promise<{ readonly id: string; readonly at: (kind: string) => string }> {
  const { thread_id: id } = await lab.run('work');
  const all = await entries(id, '--filter', 'all');
  return { id, at: (kind) => all.find((one) => one.kind === kind)?.id ?? '' };
}

function lastSent(): string {
  return JSON.stringify(server.requests.at(-1)?.body.messages);
}

describe('threads entries', () => {
  it('draws the tree under each of the five filters', async () => {
    const { id, at } = await thread();
    await rye('threads', 'label', id, at('tool_result'), 'the file');
    const kinds = async (filter: string) =>
      (await entries(id, '--filter', filter)).map(({ kind }) => kind);
    expect(await kinds('default')).toEqual(['user', 'tool_result', 'assistant']);
    expect(await kinds('no-tools')).toEqual(['user', 'assistant']);
    expect(await kinds('user-only')).toEqual(['user']);
    expect(await kinds('labeled-only')).toEqual(['tool_result']);
    expect(await kinds('all')).toEqual(
      expect.arrayContaining(['system_prompt', 'label', 'custom']),
    );
    const drawn = await rye('threads', 'entries', id);
    expect(drawn).toMatchObject({ code: 0, err: expect.stringContaining('3 of ') });
    expect(drawn.out.split('\n').map((line) => line.slice(21).trimEnd())).toEqual([
      '● user: Do the work.',
      '● tool: [the file] read a.txt → 1\tcontent of a'.replace('\t', ' '),
      '◆ model: Answer 3.',
      '',
    ]);
    expect(drawn.out.slice(8, 21)).toMatch(/^ \d\d-\d\d \d\d:\d\d $/);
    const users = await rye('threads', 'entries', id, '--filter', 'user-only');
    expect(users.out).toContain('◇ user: Do the work.');
    expect(users.err).toContain('; the filter hides the head, which is below ◇\n');
    expect((await entries(id, '--filter', 'user-only')).map(({ leaf }) => leaf)).toEqual([false]);
    expect(await rye('threads', 'entries', id, '--filter', 'most')).toMatchObject({ code: 2 });
  });

  it('fits the width of a terminal and is colored there, except with NO_COLOR', async () => {
    const { id, at } = await thread();
    await rye('threads', 'label', id, at('user'), 'the start');
    await rye('threads', 'branch', id, '--at', at('tool_result'), '--message', 'On.');
    const drawn = async (env: Readonly<Record<string, string>>) => {
      const terminal = { stdoutIsTty: true, columns: 50, cwd: lab.project };
      const io = createFakeIo({ ...terminal, env: { ...lab.env, ...env } });
      const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
      await main(['threads', 'entries', id], {
        ...io,
        env: { ...io.env, HOME: lab.home },
        openRye: open,
      });
      return io.out().trimEnd().split('\n');
    };
    const plain = await drawn({ NO_COLOR: '1' });
    expect(plain.every((line) => displayWidth(line) <= 50)).toBe(true);
    const colored = await drawn({});
    expect(colored.map(stripVTControlCharacters)).toEqual(plain);
    const escape = '\u001b';
    expect(colored[0]).toContain(`${escape}[33m[the start]${escape}[39m`);
    expect(colored.at(-1)).toMatch(new RegExp(`^${escape}\\[2m.* └─○ model: Answer 3`));
    expect(plain.map((line) => line.slice(9).trim().slice(0, 3))).toEqual([
      '● u',
      '● t',
      '├─◆',
      '└─○',
    ]);
  });

  it('searches all words in label, kind, text and arguments', async () => {
    const { id } = await thread();
    const found = await entries(id, '--search', 'CONTENT tool_result');
    expect(found.map(({ kind }) => kind)).toEqual(['tool_result']);
    const byArguments = await entries(id, '--search', 'path a.txt');
    expect(byArguments.map(({ kind }) => kind)).toEqual(['tool_result']);
    const none = await rye('threads', 'entries', id, '--search', 'zebra');
    expect([none.code, none.out]).toEqual([0, '']);
  });

  it('accepts the start or the end of an id, and lists the candidates of an ambiguous one', async () => {
    const { id } = await thread();
    await thread();
    expect((await json('threads', 'entries', id.slice(3)))['thread_id']).toBe(id);
    const ambiguous = await rye('threads', 'entries', 'work');
    expect(ambiguous).toMatchObject({ code: 2, err: expect.stringContaining('[ambiguous]') });
    expect(ambiguous.err).toContain(id);
    expect(await rye('threads', 'entries', 'no-such-thread')).toMatchObject({ code: 6 });
  });
});

describe('threads branch', () => {
  it('moves the head and prints where it is', async () => {
    const { id, at } = await thread();
    const to = at('user');
    expect(await rye('threads', 'branch', id, '--at', to)).toEqual({
      code: 0,
      out: `the head of ${id} is now ${to}\n`,
      err: '',
    });
    expect((await json('threads', 'entries', id))['leaf_id']).toBe(to);
    const root = await json('threads', 'branch', id, '--at', 'root');
    const opening = (await entries(id, '--filter', 'all')).find(({ leaf }) => leaf);
    expect(opening).toMatchObject({ kind: 'user', id: root['leaf_id'] });
    expect(opening?.text).toBe('Do the work.');
  });

  it('starts the branch with a summary of the old one: a given text, or one that the model writes', async () => {
    const { id, at } = await thread();
    const asked = server.requests.length;
    const options = ['--summary', 'It led nowhere.', '--message', 'Once more.'];
    expect(await rye('threads', 'branch', id, '--at', at('user'), ...options)).toMatchObject({
      code: 0,
    });
    expect(server.requests).toHaveLength(asked);
    const all = await entries(id, '--filter', 'all');
    expect(all.find(({ kind }) => kind === 'branch_summary')?.text).toContain('It led nowhere.');
    expect(all.find(({ leaf }) => leaf)?.text).toBe('Once more.');

    const other = await thread();
    const instructed = ['--summary', '--instructions', 'Explain why.'];
    await rye('threads', 'branch', other.id, '--at', other.at('user'), ...instructed);
    expect(lastSent()).toContain('Explain why.');
    const summary = (await entries(other.id, '--filter', 'all')).find(
      ({ kind }) => kind === 'branch_summary',
    );
    expect(summary?.text).toContain('THE SUMMARY');
  });

  it('puts the label on the summary, or on the message that begins at the root', async () => {
    const { id, at } = await thread();
    await rye('threads', 'branch', id, '--at', at('user'), '--summary', 'Left.', '--label', 'two');
    await rye('threads', 'branch', id, '--at', 'root', '--label', 'three');
    const labeled = await entries(id, '--filter', 'labeled-only');
    const kinds = new Map(labeled.map(({ label, kind }) => [label, kind]));
    expect(kinds).toEqual(
      new Map([
        ['two', 'branch_summary'],
        ['three', 'user'],
      ]),
    );
  });

  it('resumes from there with --run', async () => {
    const { id, at } = await thread();
    const ran = await rye('threads', 'branch', id, '--at', at('user'), '-m', 'In French.', '--run');
    expect(ran).toMatchObject({ code: 0, out: expect.stringContaining('Answer') });
    expect(lastSent()).toContain('In French.');
    const shown = await json('threads', 'show', id);
    expect(shown['thread']).toMatchObject({ thread_id: id, status: 'completed' });
    expect(shown['document']).toMatchObject({ runs: [{ run: 1 }, { run: 2, reason: 'branched' }] });
  });

  it('continues from there although the thread was resumed before, also by an entry of a later run', async () => {
    const { id, at } = await thread();
    const asked = (): readonly string[] =>
      (server.requests.at(-1)?.body.messages ?? []).flatMap((message) =>
        [
          ...JSON.stringify(message).matchAll(/(Do the work|Q\d[a-z]?|content of a|Answer \d)/g),
        ].map(([text]) => text),
      );
    expect(await rye('threads', 'resume', id, '-m', 'Q2')).toMatchObject({ code: 0 });
    expect(await rye('threads', 'resume', id, '-m', 'Q3')).toMatchObject({ code: 0 });
    expect(asked()).toEqual(['Do the work', 'content of a', 'Answer 3', 'Q2', 'Answer 5', 'Q3']);
    const branch = ['threads', 'branch', id, '--at', at('assistant')];
    expect(await rye(...branch, '-m', 'Q1b')).toMatchObject({ code: 0 });
    expect(await rye('threads', 'resume', id)).toMatchObject({ code: 0 });
    // the first answer is the call; its result comes along
    expect(asked()).toEqual(['Do the work', 'content of a', 'Q1b']);
    const third = (await entries(id, '--filter', 'all')).find(({ text }) => text.includes('Q3'));
    expect(await rye('threads', 'resume', id, '--from', third?.id ?? '', '-m', 'Q4')).toMatchObject(
      { code: 0 },
    );
    expect(asked().slice(-2)).toEqual(['Q3', 'Q4']);
    const shown = await json('threads', 'show', id);
    expect(shown['thread']).toMatchObject({ status: 'completed', continuation_thread_id: null });
    const { runs } = shown['document'] as { runs: readonly { reason: string }[] };
    expect(runs.map(({ reason }) => reason)).toEqual([
      'started',
      'resumed',
      'resumed',
      'branched',
      'branched',
    ]);
    expect((await rye('verify', 'thread', id)).code).toBe(0);
  });

  it('copies the path into a new thread with --new and does not change this one', async () => {
    const { id, at } = await thread();
    const before = await entries(id, '--filter', 'all');
    const options = ['--new', '--thread-id', `${id}-two`, '--label', 'here'];
    const made = await rye('threads', 'branch', id, '--at', at('tool_result'), ...options);
    expect(made).toEqual({ code: 0, out: `${id}-two\n`, err: '' });
    expect(await entries(id, '--filter', 'all')).toEqual(before);
    const copied = await entries(`${id}-two`, '--filter', 'labeled-only');
    expect(copied.map(({ label, kind }) => [label, kind])).toEqual([['here', 'tool_result']]);
    const both = ['--new', '--summary', 'x'];
    expect(await rye('threads', 'branch', id, '--at', 'root', ...both)).toMatchObject({ code: 2 });
  });

  it.each([
    [[], 2, '[usage]'],
    [['--at', 'zzz'], 6, '[entry_not_found]'],
  ])('refuses %s', async (options, code, message) => {
    const { id } = await thread();
    const before = await json('threads', 'entries', id);
    const refused = await rye('threads', 'branch', id, ...options);
    expect(refused).toMatchObject({ code, out: '', err: expect.stringContaining(message) });
    expect(await json('threads', 'entries', id)).toEqual(before);
  });
});

describe('threads label', () => {
  it('labels an entry, and removes the label without one', async () => {
    const { id, at } = await thread();
    const to = at('user');
    expect(await rye('threads', 'label', id, to.slice(0, 8), 'the start')).toMatchObject({
      code: 0,
      out: `${to}: labeled the start\n`,
    });
    expect((await entries(id, '--filter', 'labeled-only')).map(({ label }) => label)).toEqual([
      'the start',
    ]);
    expect((await rye('threads', 'label', id, to)).out).toBe(`${to}: label removed\n`);
    expect(await entries(id, '--filter', 'labeled-only')).toEqual([]);
    expect(await rye('threads', 'label', id, 'zzz', 'x')).toMatchObject({ code: 6 });
    expect(await rye('threads', 'label', id)).toMatchObject({ code: 2 });
  });
});

describe('threads compact', () => {
  it('lets the model summarize with instructions and prints the outcome', async () => {
    const { id } = await thread();
    const done = await rye('threads', 'compact', id, '--instructions', 'Only numbers.');
    expect(done).toMatchObject({ code: 0, out: expect.stringMatching(/^THE SUMMARY\n/) });
    expect(done.err).toMatch(/^compacted: entry \w+ replaces \d+ tokens\n$/);
    expect(lastSent()).toContain('Only numbers.');
    const again = await rye('threads', 'compact', id);
    expect(again).toMatchObject({ code: 0, out: expect.stringMatching(/^not compacted: /) });
    expect(await rye('verify', 'thread', id)).toMatchObject({ code: 0 });
  });
});

describe('threads resume --from', () => {
  it('resumes from an entry of a finished thread, and refuses an unknown entry', async () => {
    const { id, at } = await thread();
    const from = ['--from', at('user'), '--message', 'Another way.'];
    const resumed = await rye('threads', 'resume', id, ...from);
    expect(resumed).toMatchObject({ code: 0, out: expect.stringContaining('Answer') });
    const [first] = server.requests.slice(-2);
    expect(JSON.stringify(first?.body.messages)).toContain('Another way.');
    expect(JSON.stringify(first?.body.messages)).not.toContain('content of a');
    expect(await rye('threads', 'resume', id, '--from', 'zzz')).toMatchObject({ code: 6 });
  });
});

describe('threads resume --replay', () => {
  it('plays the recording for a thread that started with one, and refuses it for a model', async () => {
    lab.signed('directives/told.md', directive('told', { body: 'Where to?' }));
    for (const [file, text] of [
      ['one.jsonl', 'To Ghent.'],
      ['two.jsonl', 'By train.'],
    ] as const) {
      const event = { type: 'finish', reason: 'end', content: [{ type: 'text', text }] };
      const lines = [
        { record: 'call', model: 'demo', request_sha256: null },
        { record: 'event', event },
      ];
      writeFileSync(
        path.join(lab.project, file),
        lines.map((line) => `${JSON.stringify(line)}\n`).join(''),
      );
    }
    const first = await rye('run', 'told', '--thread-id', 'told', '--replay', 'one.jsonl');
    expect(first).toMatchObject({ code: 0, out: 'To Ghent.\n' });
    const second = await rye('threads', 'resume', 'told', '-m', 'How?', '--replay', 'two.jsonl');
    expect(second).toMatchObject({ code: 0, out: 'By train.\n' });
    const fork = await rye('threads', 'resume', 'told', '--new', '--replay', 'two.jsonl');
    expect(fork).toMatchObject({ code: 0, out: 'By train.\n' });
    const { id } = await thread();
    const asked = server.requests.length;
    const refused = await rye('threads', 'resume', id, '--replay', 'two.jsonl');
    expect(refused).toMatchObject({
      code: 2,
      err: expect.stringContaining('not on a recording [usage]'),
    });
    expect(server.requests).toHaveLength(asked);
  });
});

describe('threads replay', () => {
  it('prints how many steps match, also from an entry', async () => {
    const { id, at } = await thread();
    const asked = server.requests.length;
    const whole = await rye('threads', 'replay', id, '--verify');
    expect(whole).toMatchObject({
      code: 0,
      out: '6 of 6 steps match, 2 recorded answers\nno difference\n',
    });
    const part = await rye('threads', 'replay', id, '--from', at('tool_result'), '--verify');
    expect(part.out).toBe('2 of 2 steps match, 1 recorded answers\nno difference\n');
    expect(server.requests).toHaveLength(asked);
  });
});

describe('threads export', () => {
  const problem: LogProblem = { kind: 'orphan', offset: 7, message: 'its parent is not there' };
  const damaged = (problems: readonly LogProblem[]) => ({
    threads: {
      resolveId: (id: string) => Promise.resolve(id),
      session: (id: string) => Promise.resolve([id]),
      mark: () => Promise.resolve({ verified: true }),
    },
    exports: {
      export: () =>
        Promise.resolve({
          thread_id: 't',
          format: 'md',
          leaf_id: null,
          entries: 1,
          problems,
          tampered: null,
          chunks: ['# t\n'],
        }),
    },
  });

  it.each([
    [[problem], 1],
    [[{ ...problem, kind: 'torn_tail' }], 0],
  ] as const)('exports the readable part of %j and exits with %i', async (problems, status) => {
    const io = createFakeIo({ rye: damaged(problems) as never });
    expect(await main(['threads', 'export', 't'], io)).toBe(status);
    expect(io.out()).toBe('# t\n');
    expect(io.err()).toContain('byte 7: its parent is not there');
    const asked = createFakeIo({ rye: damaged(problems) as never });
    await main(['--json', 'threads', 'export', 't'], asked);
    expect(JSON.parse(asked.out())).toMatchObject({
      success: status === 0,
      content: '# t\n',
      ...(status === 0 ? {} : { error: { code: 'log_malformed' } }),
    });
  });
});

describe('threads import', () => {
  it('prints the id of the new thread, or one document', async () => {
    const file = path.join(lab.project, 'session.jsonl');
    const text =
      '{"type":"session","version":3,"id":"s-1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}\n' +
      '{"type":"message","id":"a1","parentId":null,"timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"user","content":"Where is the zebra?"}}\n' +
      '{"type":"message","id":"a2","parentId":"gone","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"user","content":"Hello?"}}\n';
    writeFileSync(file, text);
    const made = await rye('threads', 'import', 'session.jsonl', '--thread-id', 'zoo');
    expect(made).toMatchObject({ code: 0, out: 'zoo\n' });
    expect(made.err).toContain('line 3: the parent of entry a2 is not in the file');
    expect(await json('threads', 'import', 'session.jsonl')).toMatchObject({
      success: true,
      format: 'pi',
      problems: [{ kind: 'orphan', line: 3 }],
    });
    expect(readFileSync(file, 'utf8')).toBe(text);
    const back = await rye('threads', 'export', 'zoo', '--format', 'pi');
    expect(back.out.split('\n')[1]).toBe(text.split('\n')[1]);
    expect(await rye('threads', 'import', 'nothing.jsonl')).toMatchObject({ code: 6 });
    expect(await rye('threads', 'import', 'a.txt')).toMatchObject({ code: 2 });
  });
});
