import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { directive, type Lab, openLab } from './lab.ts';

const KIB = 1024;
/** More than any answer of these tests may bring; a server that wrote so much was not stopped. */
const FLOOD_BYTES = 64 * KIB * KIB;

interface Flood {
  readonly name: string;
  readonly wire: 'anthropic' | 'openai';
  /** Bytes before the flood. */
  readonly head: string;
  /** Bytes that come again and again. */
  readonly piece: string;
}

const event = (data: object): string => `data: ${JSON.stringify(data)}\n\n`;
const words = 'All work and no play. '.repeat(8);

const START = event({
  type: 'message_start',
  message: { model: 'm', usage: { input_tokens: 10, output_tokens: 1 } },
});
const block = (content_block: object): string =>
  event({ type: 'content_block_start', index: 0, content_block });
const delta = (body: object): string =>
  event({ type: 'content_block_delta', index: 0, delta: body });
const chunk = (body: object): string =>
  event({ model: 'm', choices: [{ index: 0, delta: body, finish_reason: null }] });
const call = (json: string): object => ({
  tool_calls: [{ index: 0, id: 'c', function: { name: 'rye_core_greet', arguments: json } }],
});

const SPOKEN: readonly Flood[] = [
  {
    name: 'text',
    wire: 'anthropic',
    head: START + block({ type: 'text', text: '' }),
    piece: delta({ type: 'text_delta', text: words }),
  },
  {
    name: 'reasoning',
    wire: 'anthropic',
    head: START + block({ type: 'thinking', thinking: '' }),
    piece: delta({ type: 'thinking_delta', thinking: words }),
  },
  {
    name: 'arguments of a call',
    wire: 'anthropic',
    head: `${START}${block({ type: 'tool_use', id: 't', name: 'rye_core_greet', input: {} })}${delta({ type: 'input_json_delta', partial_json: '{"who":"' })}`,
    piece: delta({ type: 'input_json_delta', partial_json: words }),
  },
  {
    name: 'calls without arguments',
    wire: 'anthropic',
    head: START,
    piece: block({ type: 'tool_use', id: 't', name: 'rye_core_greet', input: {} }),
  },
  { name: 'text', wire: 'openai', head: '', piece: chunk({ content: words }) },
  { name: 'reasoning', wire: 'openai', head: '', piece: chunk({ reasoning_content: words }) },
  {
    name: 'arguments of a call',
    wire: 'openai',
    head: chunk(call('{"who":"')),
    piece: chunk(call(words)),
  },
];

const UNSPOKEN: readonly Flood[] = [
  { name: 'one line', wire: 'anthropic', head: `${START}data: {"type":"`, piece: 'x'.repeat(512) },
  { name: 'one line', wire: 'openai', head: 'data: {"x":"', piece: 'x'.repeat(512) },
  {
    name: 'lines of one event',
    wire: 'anthropic',
    head: START,
    piece: `data: ${'y'.repeat(500)}\n`,
  },
  {
    name: 'empty events',
    wire: 'anthropic',
    head: START,
    piece: event({ type: 'ping' }),
  },
];

let lab: Lab;
let close: (() => Promise<void>) | undefined;
let requests = 0;
let sent = 0;

beforeEach(async () => {
  lab = await openLab();
  requests = 0;
  sent = 0;
});

afterEach(async () => {
  await close?.();
  close = undefined;
  await lab.remove();
});

async function flood({ wire, head, piece }: Flood): Promise<void> {
  const pieces = piece.repeat(Math.ceil((16 * KIB) / piece.length));
  const pour = async (response: ServerResponse): Promise<void> => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(head);
    while (!response.destroyed && sent < FLOOD_BYTES) {
      sent += pieces.length;
      const isTaken = response.write(pieces);
      await new Promise<void>((resolve) => {
        if (isTaken) setImmediate(resolve);
        else {
          response.once('drain', resolve);
          response.once('close', resolve);
        }
      });
    }
    response.end();
  };
  const server = createServer((incoming, response) => {
    requests += 1;
    incoming.resume();
    incoming.once('end', () => void pour(response));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  close = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const prefix = wire === 'anthropic' ? 'ANTHROPIC' : 'OPENAI';
  lab.env[`${prefix}_API_KEY`] = 'k';
  lab.env[`${prefix}_BASE_URL`] = wire === 'anthropic' ? url : `${url}/v1`;
}

async function run(limits: string) {
  const permissions = '<execute><tool>rye/core/greet</tool></execute>';
  lab.signed('directives/job.md', directive('job', { limits, permissions }));
  const result = await lab.run('job');
  const events = await lab.events(result.thread_id);
  const bytes = events.reduce((sum, one) => sum + JSON.stringify(one).length, 0);
  return { result, events, bytes };
}

describe('an answer without end', () => {
  it.each(SPOKEN)('of $name ($wire) is stopped by the spend limit', async (one) => {
    await flood(one);
    const { result, events, bytes } = await run('spend="0.05"');
    expect(result).toMatchObject({ status: 'error', error: { code: 'limit_spend' } });
    expect(result.error?.message).toMatch(/Answer stopped: it exceeded the spend limit/);
    expect(result.cost.spend).toBeGreaterThan(0.04);
    expect(result.cost.spend).toBeLessThan(0.06);
    expect(requests).toBe(1);
    expect(sent).toBeLessThan(FLOOD_BYTES / 4);
    expect(bytes).toBeLessThan(512 * KIB);
    const reached = events.find(({ event_type: type }) => type === 'limit_reached');
    expect(reached?.payload).toMatchObject({ code: 'limit_spend', max: 0.05, in_answer: true });
  });

  it('is stopped by the token limit, and the text stays', async () => {
    await flood(SPOKEN[0] as Flood);
    const { result, bytes } = await run('tokens="3000"');
    expect(result).toMatchObject({ status: 'error', error: { code: 'limit_tokens' } });
    expect(result.cost.input_tokens + result.cost.output_tokens).toBeLessThan(3600);
    expect(result.result).toMatch(/^All work and no play\./);
    expect(bytes).toBeLessThan(512 * KIB);
  });

  it.each(SPOKEN)('of $name ($wire) is stopped when the server ignores max_tokens', async (one) => {
    await flood(one);
    lab.signed('config/agent/resilience.yaml', 'behavior: { max_tokens: 1000 }\n');
    const { result } = await run('spend="5"');
    expect(result).toMatchObject({ status: 'error', error: { code: 'provider_overrun' } });
    expect(result.error?.message).toMatch(/ignored max_tokens 1000/);
    expect(result.cost.output_tokens).toBeLessThan(3000);
    expect(result.cost.output_tokens).toBeGreaterThan(1000);
    expect(requests).toBe(1);
  });

  it.each(UNSPOKEN)('as $name ($wire) is stopped by its bytes', async (one) => {
    await flood(one);
    lab.signed('config/agent/resilience.yaml', 'behavior: { max_tokens: 1000 }\n');
    const { result, bytes } = await run('spend="5"');
    expect(result).toMatchObject({ status: 'error', error: { code: 'provider_overrun' } });
    expect(requests).toBe(1);
    expect(sent).toBeLessThan(FLOOD_BYTES / 4);
    expect(bytes).toBeLessThan(64 * KIB);
  });
});
