import { describe, expect, test } from 'vitest';
import { type Message, userText } from '../../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../../src/kernel/core/usage.ts';
import {
  parseRecording,
  recordingFromMessages,
  recordingProvider,
  replayProvider,
} from '../../../src/kernel/providers/replay/recording.ts';
import { aRequest, collect, failureIn } from '../../../testing/conformance/provider.ts';
import { reply, startWireServer, text, thinking, toolUse } from '../../helpers/wire-server.ts';
import { claudeAt, SECRET_KEY } from '../fixtures.ts';

/** A real conversation of three calls with a failing second one, both as events and as a recording. */
async function recorded() {
  const server = await startWireServer([
    { steps: [thinking('hm'), text('a ', 'b'), toolUse('rye_first', { n: 1 })] },
    { status: 529, error: { type: 'overloaded_error', message: 'busy' } },
    reply('end'),
  ]);
  const lines: string[] = [];
  const provider = recordingProvider(claudeAt(server.url), (line) => {
    lines.push(line);
  });
  const events = [await collect(provider), await collect(provider), await collect(provider)];
  await server.close();
  return { events, lines };
}

describe('a recording', () => {
  test('plays what was recorded, failures too, in order, and is then exhausted', async () => {
    const { events, lines } = await recorded();
    const replay = replayProvider(parseRecording(`${lines.join('\n')}\n`, 'r.jsonl'));
    for (const expected of events) expect(await collect(replay)).toEqual(expected);
    expect(failureIn(await collect(replay))).toEqual({
      phase: 'response',
      type: 'replay_exhausted',
      message: 'the recording has 3 model calls and another one was asked for',
    });
  });

  test('can be taken up in the middle', async () => {
    const { events, lines } = await recorded();
    const replay = replayProvider(parseRecording(lines.join('\n'), 'r.jsonl'), { skip: 2 });
    expect(await collect(replay)).toEqual(events[2]);
  });

  test('is a line for each call with its digest, and a line for each event', async () => {
    const { events, lines } = await recorded();
    expect(lines).toHaveLength(3 + events.flat().length);
    const heads = lines
      .filter((line) => line.includes('"record":"call"'))
      .map((line) => JSON.parse(line) as object);
    expect(heads[0]).toEqual({
      record: 'call',
      model: 'claude-sonnet-5-5',
      request_sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    expect(heads[1]).toEqual(heads[0]);
    expect(lines.join('')).not.toContain(SECRET_KEY);
  });

  test('an event is in the recording before anybody sees it', async () => {
    const lines: string[] = [];
    const source = replayProvider(parseRecording((await recorded()).lines.join('\n'), 'r.jsonl'));
    const provider = recordingProvider(source, async (line) => {
      await Promise.resolve();
      lines.push(line);
    });
    let seen = 1;
    for await (const event of provider.stream(aRequest(), new AbortController().signal)) {
      seen += 1;
      expect(lines).toHaveLength(seen);
      expect(lines.at(-1)).toBe(JSON.stringify({ record: 'event', event }));
    }
  });

  test('whose last line is torn plays as far as it goes', async () => {
    const { lines } = await recorded();
    const cut = lines.slice(0, 4).join('\n') + '\n{"record":"ev';
    const events = await collect(replayProvider(parseRecording(cut, 'r.jsonl')));
    expect(events).toHaveLength(4);
    expect(failureIn(events)).toMatchObject({ phase: 'stream', type: 'incomplete_stream' });
  });

  test.for([
    ['{"record":"event","event":{"type":"start"}}', 1],
    ['{"record":"call"}\nnonsense\n', 2],
    ['{"record":"call"}\n{"record":"event","event":{"type":"surprise"}}\n', 2],
  ] as const)('with the line %j is refused with its place', ([content, line]) => {
    expect(() => parseRecording(content, 'r.jsonl')).toThrow(
      expect.objectContaining({
        code: 'invalid_input',
        message: expect.stringContaining(`r.jsonl:${line}`),
      }),
    );
  });

  test('of nothing is exhausted at once', async () => {
    expect(failureIn(await collect(replayProvider(parseRecording('', 'r.jsonl')))).type).toBe(
      'replay_exhausted',
    );
  });
});

test('the answers of a thread play again, without those that were cut', async () => {
  const answer = {
    role: 'assistant',
    provider: 'p',
    model: 'm',
    usage: { ...NO_USAGE, output_tokens: 4 },
  } as const;
  const call = {
    type: 'tool_call',
    call_id: 'c',
    name: 'rye_x',
    input: {},
    malformed: '{"a',
  } as const;
  const messages: Message[] = [
    userText('go'),
    { ...answer, stop_reason: 'aborted', content: [{ type: 'text', text: 'never mind' }] },
    {
      ...answer,
      stop_reason: 'tool_calls',
      content: [{ type: 'thinking', text: '', redacted: 'x' }, call],
    },
    { role: 'tool_result', call_id: 'c', name: 'rye_x', content: [], outcome: 'invalid' },
    { ...answer, stop_reason: 'end', content: [{ type: 'text', text: 'fin' }] },
  ];
  const recording = recordingFromMessages(messages);
  expect(recording.calls).toHaveLength(2);
  expect(await collect(replayProvider(recording))).toEqual([
    { type: 'start', model: 'm' },
    { type: 'toolcall_start', call_id: 'c', name: 'rye_x' },
    { type: 'toolcall_delta', call_id: 'c', json: '{"a' },
    { type: 'toolcall_end', call_id: 'c' },
    { type: 'usage', usage: { ...NO_USAGE, output_tokens: 4 } },
    { type: 'finish', reason: 'tool_calls', content: messages[2]?.content },
  ]);
});
