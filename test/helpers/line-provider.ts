import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import type { AssistantBlock } from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import {
  type ModelEvent,
  type ModelRequest,
  type ProviderFailure,
  type ProviderKind,
  type ProviderSetup,
  REMOTE_MODEL,
} from '../../src/kernel/providers/provider.ts';

/** One line of an answer on the made-up wire. */
export type AnswerLine =
  | { readonly text: string }
  | { readonly call: { readonly name: string; readonly input: JsonObject } }
  | { readonly used: { readonly input: number; readonly output: number } };

/** One turn of a script: lines, and what comes after them; or a refusal. */
export type LineTurn =
  | { readonly lines: readonly AnswerLine[]; readonly after?: 'hang' | 'flood' }
  | { readonly status: number; readonly message: string };

export interface LineRequest {
  readonly body: ModelRequest;
  readonly headers: Readonly<Record<string, unknown>>;
  /** True when the client left before the answer was complete. */
  readonly closed: Promise<boolean>;
  readonly drained: () => boolean;
}

export interface LineServer {
  readonly url: string;
  readonly requests: readonly LineRequest[];
  readonly close: () => Promise<void>;
}

const FLOOD = `${JSON.stringify({ text: 'x'.repeat(1 << 20) })}\n`;

/** A loopback server that answers with one JSON object a line. */
export async function startLineServer(script: (index: number) => LineTurn): Promise<LineServer> {
  const requests: LineRequest[] = [];
  const handle = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Uint8Array);
    const index = requests.length;
    requests.push({
      body: JSON.parse(Buffer.concat(chunks).toString('utf8')) as ModelRequest,
      headers: incoming.headers,
      closed: once(response, 'close').then(() => !response.writableFinished),
      drained: () => response.writableFinished,
    });
    await answer(script(index), response);
  };
  const server = createServer((incoming, response) => void handle(incoming, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    close: async () => {
      server.close();
      server.closeAllConnections();
      if (server.listening) await once(server, 'close');
    },
  };
}

async function answer(turn: LineTurn, response: ServerResponse): Promise<void> {
  if ('status' in turn) {
    response.writeHead(turn.status).end(turn.message);
    return;
  }
  for (const line of turn.lines) response.write(`${JSON.stringify(line)}\n`);
  if (turn.after === 'hang') return;
  for (let count = 0; turn.after === 'flood' && count < 64; count += 1) {
    if (!response.write(FLOOD) && !response.destroyed) {
      await Promise.race([once(response, 'drain'), once(response, 'close')]);
    }
  }
  response.end();
}

/** A kind of provider that rye does not ship: an answer is one JSON object a line. */
export const LINES: ProviderKind = {
  traits: REMOTE_MODEL,
  checkOptions: ({ voice }) =>
    voice === undefined || typeof voice === 'string'
      ? undefined
      : { member: 'voice', problem: 'must be a text' },
  open: (setup) => ({
    name: setup.config.name,
    async *stream(request, signal) {
      try {
        yield* conversation(setup, request, signal);
      } catch (error) {
        yield { type: 'error', failure: failureOf(error, signal) };
      }
    },
  }),
};

function failureOf(error: unknown, signal: AbortSignal): ProviderFailure {
  if (signal.aborted) return { phase: 'aborted', message: 'the model call was cancelled' };
  const message = error instanceof Error ? error.message : String(error);
  return { phase: 'connect', message: `no answer: ${message}` };
}

async function* conversation(
  { config, env }: ProviderSetup,
  request: ModelRequest,
  signal: AbortSignal,
): AsyncGenerator<ModelEvent> {
  const response = await fetch(config.baseUrl ?? '', {
    method: 'POST',
    signal,
    headers: {
      'x-voice': JSON.stringify(config.options['voice'] ?? null),
      'x-key': env['LINES_KEY'] ?? '',
    },
    body: JSON.stringify(request),
  });
  if (!response.ok || !response.body) {
    const message = await response.text();
    yield { type: 'error', failure: { phase: 'response', status: response.status, message } };
    return;
  }
  yield { type: 'start', model: request.model };
  const content: AssistantBlock[] = [];
  for await (const line of linesOf(response.body)) {
    signal.throwIfAborted();
    yield* decoded(JSON.parse(line) as AnswerLine, request, content);
  }
  signal.throwIfAborted();
  const isCalling = content.some(({ type }) => type === 'tool_call');
  yield { type: 'finish', reason: isCalling ? 'tool_calls' : 'end', content };
}

function* decoded(
  line: AnswerLine,
  { messages }: ModelRequest,
  content: AssistantBlock[],
): Generator<ModelEvent> {
  if ('text' in line) {
    content.push({ type: 'text', text: line.text });
    yield { type: 'text_delta', text: line.text };
  } else if ('call' in line) {
    const { name, input } = line.call;
    const call_id = `call-${messages.length}-${content.length}`;
    content.push({ type: 'tool_call', call_id, name, input });
    yield { type: 'toolcall_start', call_id, name };
    yield { type: 'toolcall_delta', call_id, json: JSON.stringify(input) };
    yield { type: 'toolcall_end', call_id };
  } else {
    const { input: input_tokens, output: output_tokens } = line.used;
    yield { type: 'usage', usage: { ...NO_USAGE, input_tokens, output_tokens } };
  }
}

async function* linesOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const bytes of body) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
}
