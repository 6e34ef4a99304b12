import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it, test } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import type { ExecuteDirectiveRequest } from '../../../src/kernel/app/api/rye.ts';
import type { ThreadsService } from '../../../src/kernel/app/api/threads.ts';
import { RyeError } from '../../../src/kernel/core/errors.ts';
import type { ThreadResult } from '../../../src/kernel/core/thread.ts';
import { createFakeIo, type FakeIo, type FakeIoOptions } from '../../helpers/fake-io.ts';
import { removeFolder } from '../../helpers/remove-folder.ts';
import { assistantMessage, COMPLETED, event, LIMITED, STARTED } from '../events.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'rye-execute-'));
afterAll(() => {
  removeFolder(folder);
});

interface Call {
  readonly code: number;
  readonly io: FakeIo;
  readonly request: ExecuteDirectiveRequest;
}

const DELTA = event('token_delta', { text: 'Hello, Ada.' });

/** Runs `rye run hello` on a project whose thread ends with `outcome`. */
async function runHello(
  args: readonly string[],
  outcome: ThreadResult | RyeError = COMPLETED,
  options: FakeIoOptions = {},
): Promise<Call> {
  const requests: ExecuteDirectiveRequest[] = [];
  const execute: ThreadsService['execute'] = (request) => {
    requests.push(request);
    if (outcome instanceof RyeError) throw outcome;
    for (const one of [STARTED, DELTA, assistantMessage('Hello, Ada.')]) request.onEvent?.(one);
    return Promise.resolve(outcome);
  };
  const resolveId = async (part: string): Promise<string> => part;
  const rye = { threads: { execute, resolveId } as ThreadsService };
  const io = createFakeIo({ cwd: folder, rye, ...options });
  const code = await main(['run', 'hello', ...args], io);
  return { code, io, request: requests[0] ?? { directiveId: '' } };
}

describe('request', () => {
  it('takes inputs from files, a document and pairs', async () => {
    writeFileSync(path.join(folder, 'note.txt'), 'from a file\n');
    const { request } = await runHello([
      '--inputs',
      '{"a": 1, "b": [2]}',
      '--input',
      'a=x=y',
      '--input',
      'note=@note.txt',
      '--input',
      '__proto__=kept',
    ]);
    expect(Object.entries(request.inputs ?? {})).toEqual([
      ['a', 'x=y'],
      ['b', [2]],
      ['note', 'from a file\n'],
      ['__proto__', 'kept'],
    ]);
  });

  it('takes inputs from standard input', async () => {
    const { request } = await runHello(['--inputs', '-'], COMPLETED, { stdin: '{"a": true}' });
    expect(request.inputs).toEqual({ a: true });
  });

  it('names the option and the file that is missing', async () => {
    const { code, io } = await runHello(['--input', 'note=@gone.txt']);
    expect(io.err()).toContain('--input note: file not found: gone.txt [file_not_found]');
    expect(code).toBe(6);
  });

  // Requirement: options-become-inputs
  it('takes the familiar spellings', async () => {
    writeFileSync(path.join(folder, 'schema.json'), '{"type": "object"}');
    const { request } = await runHello([
      '-p',
      '--max-turns=3',
      '--max-budget-usd=0.5',
      '--session-id=mine',
      '--json-schema=schema.json',
      '--limit=tokens=100',
    ]);
    expect(request).toMatchObject({
      limits: { turns: 3, spend: 0.5, tokens: 100 },
      threadId: 'mine',
      outputSchema: { type: 'object' },
    });
  });

  it('takes the parent from the environment', async () => {
    const env = { RYE_PARENT_THREAD_ID: 'parent-1' };
    const { request } = await runHello([], COMPLETED, { env });
    const { request: explicit } = await runHello(['--parent', 'other-1'], COMPLETED, { env });
    expect([request.parentThreadId, explicit.parentThreadId]).toEqual(['parent-1', 'other-1']);
  });
});

describe('output', () => {
  it('is the result on stdout and progress on stderr', async () => {
    const { code, io } = await runHello([]);
    expect(io.out()).toBe('Hello, Ada.\n');
    expect(io.err()).toBe(
      'hello on acme/large\ncompleted hello-1 (1 turn, 900 tokens, $0.0125, 1.5s)\n',
    );
    expect(code).toBe(0);
  });

  it.each(['--quiet', '-p'])('is the result alone with %s', async (option) => {
    const { io } = await runHello([option]);
    expect([io.out(), io.err()]).toEqual(['Hello, Ada.\n', '']);
  });

  it.each([['--json'], ['--output-format', 'json']])(
    'is the ThreadResult with %s %s',
    async (...args) => {
      const { io } = await runHello(args);
      expect(JSON.parse(io.out())).toMatchObject(COMPLETED);
      expect(io.err()).toBe('');
    },
  );

  it('is every event and one result line with stream-json', async () => {
    const { io } = await runHello(['--output-format', 'stream-json']);
    const lines = io.out().trimEnd().split('\n');
    const types = lines.map((line) => (JSON.parse(line) as { event_type: string }).event_type);
    expect(types).toEqual(['thread_started', 'token_delta', 'message', 'result']);
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ event_type: 'result', ...COMPLETED });
  });

  it('ends with one result line when the run cannot start', async () => {
    const refused = new RyeError('capability_denied', 'no');
    const { code, io } = await runHello(['--output-format', 'stream-json'], refused);
    expect(JSON.parse(io.out())).toMatchObject({
      event_type: 'result',
      success: false,
      error: { code: 'capability_denied' },
    });
    expect(code).toBe(4);
  });

  it('also goes to a file', async () => {
    await runHello(['-o', 'result.txt']);
    await runHello(['-o', 'result.json', '--json']);
    expect(readFileSync(path.join(folder, 'result.txt'), 'utf8')).toBe('Hello, Ada.\n');
    expect(JSON.parse(readFileSync(path.join(folder, 'result.json'), 'utf8'))).toMatchObject(
      COMPLETED,
    );
  });

  it('writes the same to the file and to stdout', async () => {
    const { io } = await runHello(['-o', 'outputs.txt'], {
      ...COMPLETED,
      outputs: { greeting: 'Hi' },
    });
    expect(io.out()).toBe('greeting: Hi\n');
    expect(readFileSync(path.join(folder, 'outputs.txt'), 'utf8')).toBe(io.out());
  });

  it('refuses a file that it cannot write before it runs anything', async () => {
    const { code, io, request } = await runHello(['-o', 'no/such/folder.txt']);
    expect(io.err()).toContain('--output: cannot write to no/such/folder.txt [invalid_input]');
    expect([code, request.directiveId]).toEqual([2, '']);
  });
});

describe('exit status', () => {
  test.each<[string, ThreadResult, number]>([
    ['completed', COMPLETED, 0],
    ['a limit', LIMITED, 5],
    ['cancelled', { ...LIMITED, status: 'cancelled' }, 130],
    ['provider failure', { ...LIMITED, error: { code: 'provider_auth', message: 'bad key' } }, 7],
    ['suspended', { ...COMPLETED, success: false, status: 'suspended' }, 8],
  ])('%s', async (_, result, expected) => {
    const { code, io } = await runHello([], result);
    expect(code).toBe(expected);
    expect(io.err().includes('rye: ')).toBe(!result.success);
  });
});

describe('the result document', () => {
  it('has the members that scripts for other agents read', async () => {
    const cost = { ...COMPLETED.cost, total: { spend: 0.02, tokens: 1000, turns: 3 } };
    const { io } = await runHello(['--json'], { ...COMPLETED, cost, outputs: { n: 4 } });
    expect(JSON.parse(io.out())).toMatchObject({
      session_id: 'hello-1',
      is_error: false,
      num_turns: 1,
      total_cost_usd: 0.02,
      duration_ms: 1500,
      structured_output: { n: 4 },
      permission_denials: [],
      cost: { own: { spend: 0.0125 }, total: { spend: 0.02 } },
    });
    const { io: text } = await runHello([], { ...COMPLETED, cost });
    expect(text.err()).toContain('$0.0125, $0.0200 with children');
  });
});
