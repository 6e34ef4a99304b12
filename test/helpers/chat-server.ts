import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type ChatBody, checkChatRequest } from './chat-rules.ts';

export type { ChatBody } from './chat-rules.ts';

/** One thing that the server does in the middle of an answer, in order. */
export type ChatStep =
  | { readonly kind: 'delta'; readonly delta: object }
  /** Continues when the promise settles. */
  | { readonly kind: 'wait'; readonly until: Promise<unknown> }
  /** Bytes as they are. */
  | { readonly kind: 'raw'; readonly bytes: string | Uint8Array }
  | { readonly kind: 'reset' }
  /** Ends the body politely, without the last chunks. */
  | { readonly kind: 'truncate' };

/** One turn of the script. `hang` answers with nothing at all; `reset` closes before the headers. */
export type ChatTurn =
  | {
      readonly steps: readonly ChatStep[];
      readonly usage?: object | null;
      readonly finish?: string;
      readonly contentType?: string;
    }
  | {
      readonly status: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly error?: object;
      /** Instead of the API's JSON. */
      readonly body?: string;
    }
  | { readonly pieces: readonly (string | Uint8Array)[]; readonly contentType?: string }
  | 'hang'
  | 'reset';

export interface ChatRequest {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: ChatBody;
  /** True when the client left before the answer was complete. */
  readonly closed: Promise<boolean>;
}

export interface ChatServer {
  /** Base URL, with `/v1`. */
  readonly url: string;
  readonly requests: readonly ChatRequest[];
  readonly request: (index: number) => Promise<ChatRequest>;
  readonly push: (...turns: readonly ChatTurn[]) => void;
  /** Throws where a request broke a rule of the API. */
  readonly close: () => Promise<void>;
}

/**
 * A loopback server that speaks the stream of chat completions from a script. It records whole requests and refuses, as
 * the API would, also requests that break its rules or the rules of `dialect`. A script that ran out answers 500.
 */
export async function startChatServer(
  script: readonly ChatTurn[] | ((index: number) => ChatTurn),
  dialect?: string,
): Promise<ChatServer> {
  const turns = typeof script === 'function' ? [] : [...script];
  const requests: ChatRequest[] = [];
  const violations: string[] = [];
  const waiters: { readonly index: number; readonly wake: (request: ChatRequest) => void }[] = [];

  const handle = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Uint8Array);
    const body = JSON.parse(Buffer.concat(chunks).toString('utf8')) as ChatBody;
    const index = requests.length;
    const request: ChatRequest = {
      path: incoming.url ?? '',
      headers: incoming.headers,
      body,
      closed: new Promise((resolve) => {
        response.once('close', () => resolve(!response.writableFinished));
      }),
    };
    requests.push(request);
    for (const { wake } of waiters.filter((one) => one.index === index)) wake(request);
    const problems = checkChatRequest(body, dialect);
    violations.push(...problems.map((problem) => `request ${index}: ${problem}`));
    const planned = typeof script === 'function' ? script(index) : turns[index];
    const refusal = { status: 400, error: { message: problems[0], type: 'invalid_request_error' } };
    const exhausted = { status: 500, error: { message: 'the script has ended' } };
    await answer(problems.length > 0 ? refusal : (planned ?? exhausted), response, body.model);
  };
  const server = createServer((incoming, response) => {
    handle(incoming, response).catch((error: unknown) => {
      if (!response.destroyed) violations.push(`the chat server failed: ${String(error)}`);
      response.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests,
    request: async (index) =>
      requests[index] ?? new Promise((wake) => void waiters.push({ index, wake })),
    push: (...more) => void turns.push(...more),
    close: async () => {
      const closed = new Promise<void>((resolve) => void server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
      if (violations.length > 0) throw new Error(`refused:\n${violations.join('\n')}`);
    },
  };
}

/** Text, in the given pieces. */
export function chatText(...pieces: readonly string[]): ChatStep[] {
  return pieces.map((content) => ({ kind: 'delta', delta: { content } }));
}

/** A call; its arguments come in two pieces. */
export function chatCall(index: number, name: string, input: unknown, id?: string): ChatStep[] {
  const json = JSON.stringify(input);
  const middle = Math.ceil(json.length / 2);
  const first = {
    index,
    id: id ?? `call_${index}`,
    type: 'function',
    function: { name, arguments: json.slice(0, middle) },
  };
  return [first, { index, function: { arguments: json.slice(middle) } }].map((call) => ({
    kind: 'delta',
    delta: { tool_calls: [call] },
  }));
}

async function answer(turn: ChatTurn, response: ServerResponse, model: string): Promise<void> {
  if (turn === 'hang') return;
  if (turn === 'reset') {
    response.socket?.resetAndDestroy();
    return;
  }
  if ('status' in turn) {
    const type = turn.body === undefined ? 'application/json' : 'text/html';
    response.writeHead(turn.status, {
      'content-type': type,
      'x-request-id': 'req_7',
      ...turn.headers,
    });
    response.end(turn.body ?? JSON.stringify({ error: turn.error ?? { message: 'failed' } }));
    return;
  }
  response.writeHead(200, { 'content-type': turn.contentType ?? 'text/event-stream' });
  if ('pieces' in turn) {
    for (const piece of turn.pieces) {
      await writeFully(response, piece);
      // each piece in a separate packet
      await new Promise(setImmediate);
    }
    response.end();
    return;
  }
  await stream(turn, response, model);
}

async function stream(
  turn: Extract<ChatTurn, { steps: unknown }>,
  response: ServerResponse,
  model: string,
): Promise<void> {
  const send = async (members: object): Promise<void> => {
    const chunk = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model };
    await writeFully(response, `data: ${JSON.stringify({ ...chunk, ...members })}\n\n`);
  };
  const choice = (delta: object, finish_reason: string | null) => ({
    choices: [{ index: 0, delta, finish_reason }],
  });
  await send(choice({ role: 'assistant', content: '' }, null));
  let hasCalls = false;
  for (const step of turn.steps) {
    if (response.destroyed) return;
    if (step.kind === 'reset') {
      await new Promise((resolve) => response.write(': last words\n\n', resolve));
      response.socket?.resetAndDestroy();
      return;
    }
    if (step.kind === 'truncate') {
      response.end();
      return;
    }
    if (step.kind === 'wait') await step.until;
    else if (step.kind === 'raw') await writeFully(response, step.bytes);
    else {
      hasCalls ||= 'tool_calls' in step.delta;
      await send(choice(step.delta, null));
    }
  }
  await send(choice({}, turn.finish ?? (hasCalls ? 'tool_calls' : 'stop')));
  const usage = turn.usage ?? { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
  if (turn.usage !== null) await send({ choices: [], usage });
  response.end('data: [DONE]\n\n');
}

/** Writes with back-pressure: settles only when the client took it, or left. */
async function writeFully(response: ServerResponse, bytes: string | Uint8Array): Promise<void> {
  if (response.write(bytes) || response.destroyed) return;
  await new Promise<void>((resolve) => {
    response.once('drain', resolve);
    response.once('close', resolve);
  });
}
