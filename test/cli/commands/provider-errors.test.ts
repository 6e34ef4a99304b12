import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import { openRye } from '../../../src/open-rye.ts';
import { type Lab, openLab } from '../../attacks/lab.ts';
import { createFakeIo, type FakeIoOptions } from '../../helpers/fake-io.ts';
import { reply, type WireTurn } from '../../helpers/wire-server.ts';

const KEY = 'sk-ant-secret-4f1d9b';

let lab: Lab;
let turns: WireTurn[] = [];
let requests = 0;

beforeEach(async () => {
  turns = [];
  requests = 0;
  lab = await openLab();
  await lab.model(() => {
    requests += 1;
    return turns.shift() ?? reply('42');
  });
});
afterEach(async () => await lab.remove());

/** Runs rye in this process. */
async function rye(args: readonly string[], options: FakeIoOptions = {}) {
  const io = createFakeIo({ cwd: lab.project, ...options });
  const env = options.env ?? { ...lab.env, ANTHROPIC_API_KEY: KEY };
  const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
  const openKeyboard = () =>
    Promise.resolve({ suspend: () => {}, lend: () => () => {}, close: () => {} });
  const code = await main(args, { ...io, env, openKeyboard, openRye: open, openThreadList: open });
  const shown = { code, out: io.out(), err: io.err() };
  if (code === 7) expect(shown.err).not.toContain('<process>');
  expect(JSON.stringify(shown)).not.toContain(KEY);
  return shown;
}

const WRONG_KEY: WireTurn = {
  status: 401,
  error: { type: 'authentication_error', message: 'invalid x-api-key' },
};
const OVERLOADED: WireTurn = {
  status: 529,
  headers: { 'retry-after-ms': '5' },
  error: { type: 'overloaded_error', message: 'Overloaded' },
};

describe('a provider that refuses the key', () => {
  it('is an error that names the variable, its origin, the thread and the next command', async () => {
    turns = [WRONG_KEY];
    const { code, err } = await rye(['ask', 'What?']);
    expect(code).toBe(7);
    expect(err).toMatch(/invalid x-api-key \[provider_auth\]/);
    expect(err).toMatch(
      /hint: Correct the key\. Then: rye threads resume rye\/core\/ask-\w+ \(key: ANTHROPIC_API_KEY, from the environment; address: ANTHROPIC_BASE_URL, from the environment\)/,
    );
    // the command does what the hint promises
    const id = /rye threads resume (\S+)/.exec(err)?.[1] ?? '';
    expect(await rye(['threads', 'resume', id, '-p'])).toMatchObject({ code: 0, out: '42\n' });
  });

  it('names the file of keys if the key is from there', async () => {
    mkdirSync(path.join(lab.home, '.ai'), { recursive: true });
    writeFileSync(path.join(lab.home, '.ai/.env'), `ANTHROPIC_API_KEY=${KEY}\n`, { mode: 0o600 });
    turns = [WRONG_KEY];
    const { ANTHROPIC_API_KEY: _key, ...env } = lab.env;
    const { err } = await rye(['ask', 'What?'], { env });
    expect(err).toContain('(key: ANTHROPIC_API_KEY, from ~/.ai/.env');
  });
});

describe('a request that the provider refuses', () => {
  const REFUSED: WireTurn = {
    status: 400,
    error: { type: 'invalid_request_error', message: 'messages.0.content.0: bad image' },
  };
  const UNKNOWN: WireTurn = {
    status: 404,
    error: { type: 'not_found_error', message: 'model: x' },
  };

  it.each([
    [
      'a message of the conversation',
      REFUSED,
      /^next: (rye threads entries \S+)$/m,
      /--from ENTRY/,
    ],
    ['an unknown model', UNKNOWN, /^resume: (rye threads resume \S+ --refresh)$/m, /--refresh/],
    ['the key', WRONG_KEY, /^resume: (rye threads resume \S+)$/m, /Correct the key/],
  ])('for %s has one next command in the hint and at the end', async (_name, turn, last, hint) => {
    turns = [turn];
    const { code, err } = await rye(['run', 'rye/core/ask', '--input', 'question=What?']);
    expect(code).toBe(7);
    const told = /^hint: .*$/m.exec(err)?.[0] ?? '';
    expect(told).toMatch(hint);
    const next = last.exec(err)?.[1] ?? 'nothing';
    expect(told).toContain(next);
    // the last line is the only other one that leads on
    expect(err.match(/^(?:resume|next): /gm)).toHaveLength(1);
    expect((await rye(next.split(' ').slice(1))).code).toBe(0);
  });
});

describe('a malformed key', () => {
  it.each(['…', 'sk ant', 'sk-ant\nsk-ant', 'sk-ant-ключ'])(
    '%j is refused at once, and never sent or shown',
    async (key) => {
      const { code, err } = await rye(['ask', 'What?'], {
        env: { ...lab.env, ANTHROPIC_API_KEY: key },
      });
      expect({ code, requests }).toEqual({ code: 7, requests: 0 });
      expect(err).not.toContain('retry 1 in');
      expect(err).toMatch(/the key in ANTHROPIC_API_KEY is not a key: .* \[provider_auth\]/);
      expect(err).toMatch(/hint: Correct the key\. Then: rye threads resume /);
      expect(err).not.toContain(key);
    },
  );

  it('has white space around it, which is dropped', async () => {
    const env = { ...lab.env, ANTHROPIC_API_KEY: ` ${KEY}\r\n` };
    expect(await rye(['ask', 'What?'], { env })).toMatchObject({ code: 0, out: '42\n' });
  });
});

describe('without a key', () => {
  const NO_KEY =
    'rye: No API key [provider_key_missing]\nhint: Set ANTHROPIC_API_KEY (others: rye models list), or use a local server: --provider ollama\n';
  const keyless = () => {
    const { ANTHROPIC_API_KEY: _key, ...env } = lab.env;
    return { env };
  };

  it.each([['ask', 'What?'], ['chat'], ['run', 'rye/core/ask', '--input', 'question=x']])(
    '%s is refused at once and starts nothing',
    async (...args) => {
      const stdin = args[0] === 'chat' ? { stdin: 'Hello\n' } : {};
      const { code, out, err } = await rye(args, { ...keyless(), ...stdin });
      expect({ code, out, err: err.replace(/^new signing key.*\n/m, '') }).toEqual({
        code: 7,
        out: '',
        err: NO_KEY,
      });
      expect(await lab.rye().threads.list()).toEqual([]);
    },
  );

  it.each([
    ['chat', '--continue'],
    ['threads', 'resume', '@'],
    ['ask', '--continue', 'And?'],
  ])('%s %s is refused before it adds a run', async (...args) => {
    const command = args[0] === 'chat' ? ['chat'] : ['ask', 'What?'];
    expect((await rye(command, { stdin: 'Hello' })).code).toBe(0);
    const [before] = await lab.rye().threads.list();
    const { code, err } = await rye(args, { ...keyless(), stdin: 'Hello\n' });
    expect(code).toBe(7);
    expect(err).toMatch(
      /^rye: the provider anthropic has no key \[provider_key_missing\]\nhint: Set ANTHROPIC_API_KEY in the environment or in ~\/\.ai\/\.env/m,
    );
    expect((await lab.rye().threads.list())[0]).toEqual(before);
  });

  it.each([['chat'], ['chat', '--continue']])(
    '%s %s at a terminal is refused before a message is typed',
    async (...args) => {
      if (args.length > 1) expect((await rye(['chat'], { stdin: 'Hello' })).code).toBe(0);
      const terminal = { answer: '', stdoutIsTty: true, stderrIsTty: true };
      const env = { ...keyless().env, TERM: 'xterm-256color' };
      const { code, err } = await rye(args, { ...terminal, env });
      expect(code).toBe(7);
      expect(err).toContain('[provider_key_missing]');
    },
  );

  it('doctor names the variables that are set and where, never a value', async () => {
    const { out } = await rye(['doctor']);
    expect(out).toMatch(/models: anthropic; default anthropic\/claude-sonnet-5-5/);
    expect(out.replaceAll(/\s+/g, ' ')).toContain('keys: ANTHROPIC_API_KEY, from the environment');
    const without = await rye(['doctor'], keyless());
    expect(without.out.replaceAll(/\s+/g, ' ')).toContain('anthropic needs ANTHROPIC_API_KEY');
  });
});

describe('a model that does not exist', () => {
  it('is refused before anything starts, with near names and the list', async () => {
    const { code, err } = await rye(['ask', 'What?', '--model', 'claude-sonet-5-5']);
    expect(code).toBe(6);
    expect(err).toContain('Did you mean claude-sonnet-5-5');
    expect(err).toContain('rye models list');
    expect(requests).toBe(0);
  });

  it('that only the provider knows is an error with the list and the command', async () => {
    turns = [
      { status: 404, error: { type: 'not_found_error', message: 'model: claude-sonnet-5-5' } },
    ];
    const { code, err } = await rye(['ask', 'What?']);
    expect(code).toBe(7);
    expect(err).toMatch(/hint: .*rye models list.*: rye threads resume \S+ --refresh \(key: /);
  });
});

describe('an overload', () => {
  it('is waited for as the provider asks, with an event for each wait', async () => {
    turns = [OVERLOADED, OVERLOADED, OVERLOADED];
    const args = ['run', 'rye/core/ask', '--input', 'question=q', '--output-format', 'stream-json'];
    const { code, out } = await rye(args);
    expect(code).toBe(0);
    const waits = out
      .split('\n')
      .filter((line) => line.includes('"retry_scheduled"'))
      .map((line) => (JSON.parse(line) as { payload: object }).payload);
    expect(waits).toEqual(
      [1, 2, 3].map((attempt) => ({
        attempt,
        delay_ms: 5,
        policy: 'use_header',
        reason: 'overloaded',
      })),
    );
  });

  it.each([
    [['run', 'rye/core/ask', '--input', 'question=q'], 2, /^overloaded, retry \d in \d+ s$/],
    [['ask', 'What?'], 2, /^rye: overloaded, retry \d in \d+ s$/],
    [['chat'], 2, /^rye: overloaded, retry \d in \d+ s$/],
    [['ask', 'What?', '--quiet'], 0, /./],
    [['run', 'rye/core/ask', '--input', 'question=q', '--quiet'], 0, /./],
  ] as const)(
    'is one line on stderr for each wait without a terminal: %j',
    async (args, count, form) => {
      turns = [OVERLOADED, OVERLOADED];
      const { code, out, err } = await rye(args, args[0] === 'chat' ? { stdin: 'Hello' } : {});
      expect([code, out]).toEqual([0, '42\n']);
      const waits = err.split('\n').filter((line) => /overload/i.test(line));
      expect(waits).toHaveLength(count);
      for (const wait of waits) expect(wait).toMatch(form);
    },
  );

  it('is retried as often as max_retries of an older configuration allows', async () => {
    turns = Array.from({ length: 9 }, () => OVERLOADED);
    const { code, err } = await rye(['ask', 'What?', '-c', 'resilience.retry.max_retries=2']);
    expect([code, requests]).toEqual([7, 3]);
    expect(err).toMatch(/hint: When the provider answers again: rye threads resume \S+ \(key: /);
  });

  it('that is to last ten days ends at once and states when to come back', async () => {
    turns = [{ ...OVERLOADED, headers: { 'retry-after': '864000' } }];
    const { code, err } = await rye(['ask', 'What?']);
    expect([code, requests]).toEqual([7, 1]);
    expect(err).toMatch(/it asks to wait 10 days/);
    expect(err).toMatch(/hint: Wait until \d{4}-\d\d-\d\d \d\d:\d\d UTC, or configure/);
  });
});
