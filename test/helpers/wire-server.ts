import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { checkRequest, type WireBody } from './wire-rules.ts';

export type { WireBlock, WireBody } from './wire-rules.ts';

/** One thing that the server does in the middle of an answer, in order. */
export type WireStep =
  | { readonly kind: 'text'; readonly chunks: readonly string[] }
  | {
      readonly kind: 'thinking';
      readonly chunks: readonly string[];
      readonly signature?: string;
    }
  | { readonly kind: 'redacted'; readonly data: string }
  | {
      readonly kind: 'tool';
      readonly id?: string;
      readonly name: string;
      /** The argument text, cut as it is streamed. */
      readonly chunks: readonly string[];
    }
  /** Continues when the promise settles. */
  | { readonly kind: 'wait'; readonly until: Promise<unknown> }
  /** Bytes as they are, for malformed answers. */
  | { readonly kind: 'raw'; readonly bytes: string | Uint8Array }
  /** An `error` event inside the stream, which ends it. */
  | { readonly kind: 'error'; readonly type: string; readonly message: string }
  /** Resets the connection. */
  | { readonly kind: 'reset' }
  /** Ends the body politely, without the last events. */
  | { readonly kind: 'truncate' }
  | { readonly kind: 'ping' };

export interface WireUsage {
  readonly input_tokens?: number;
  readonly output_tokens?: number;
  readonly cache_read_input_tokens?: number;
  readonly cache_creation_input_tokens?: number;
}

/** A streamed answer. */
export interface WireAnswer {
  readonly steps: readonly WireStep[];
  readonly usage?: WireUsage;
  /** Default: `tool_use` where there is a tool step, else `end_turn`. */
  readonly stop_reason?: string | null;
  /** Default: the model of the request. */
  readonly model?: string;
  readonly contentType?: string;
}

/** A plain HTTP answer, for failures before the stream. */
export interface WireFailure {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly error?: { readonly type: string; readonly message: string };
  /** Instead of the API's JSON. */
  readonly body?: string;
}

/** A whole body as it is, in pieces that are written one by one: a recorded answer. */
export interface WireBytes {
  readonly pieces: readonly (string | Uint8Array)[];
  readonly contentType?: string;
}

/** One turn of the script. `hang` answers with nothing at all; `reset` closes before the headers. */
export type WireTurn = WireAnswer | WireFailure | WireBytes | 'hang' | 'reset';

export interface WireRequest {
  /** From 0. */
  readonly index: number;
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: WireBody;
  /** Settles when the connection of this request is gone or the answer is complete; true: the client left early. */
  readonly closed: Promise<boolean>;
}

/** Decides an answer by the request; `index` counts requests from 0. */
export type WireScript =
  | readonly WireTurn[]
  | ((request: WireRequest) => WireTurn | Promise<WireTurn>);

export interface WireServer {
  /** Base URL for `ANTHROPIC_BASE_URL`. */
  readonly url: string;
  readonly requests: readonly WireRequest[];
  /** Problems that the real API would have refused, one sentence each. */
  readonly violations: readonly string[];
  /** Adds turns to a list script. */
  readonly push: (...turns: readonly WireTurn[]) => void;
  /** The request of this index, as soon as it came. */
  readonly request: (index: number) => Promise<WireRequest>;
  /** Closes every connection. Throws where a request broke a rule of the API, unless `allowViolations`. */
  readonly close: () => Promise<void>;
}

/**
 * A loopback server that speaks the Messages API's stream from a script. It records whole requests and checks each
 * one as the API would: roles alternate, each tool call has exactly one result in the next user turn, names and
 * blocks are well formed, and there are at most four cache marks. A broken rule is answered with 400 and kept in
 * `violations`. A script that ran out answers 400
 * `script_exhausted`, which no client retries.
 */
export async function startWireServer(
  script: WireScript,
  options: { readonly allowViolations?: boolean } = {},
): Promise<WireServer> {
  const requests: WireRequest[] = [];
  const violations: string[] = [];
  const turns: WireTurn[] = typeof script === 'function' ? [] : [...script];
  const waiters = new Map<number, ((request: WireRequest) => void)[]>();
  let served = 0;

  const nextTurn = async (request: WireRequest): Promise<WireTurn> => {
    if (typeof script === 'function') return script(request);
    const turn = turns[served];
    served += 1;
    return (
      turn ?? {
        status: 400,
        error: { type: 'script_exhausted', message: `the script has ${turns.length} turns` },
      }
    );
  };

  const handle = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const received = await readAll(incoming);
    const body = JSON.parse(received === '' ? '{}' : received) as WireBody;
    const request: WireRequest = {
      index: requests.length,
      method: incoming.method ?? '',
      path: incoming.url ?? '',
      headers: incoming.headers,
      body,
      closed: new Promise((resolve) => {
        response.once('close', () => resolve(!response.writableFinished));
      }),
    };
    requests.push(request);
    for (const resolve of waiters.get(request.index) ?? []) resolve(request);
    const problems = checkRequest(body);
    violations.push(...problems.map((problem) => `request ${request.index}: ${problem}`));
    const [problem] = problems;
    const turn: WireTurn =
      problem === undefined
        ? await nextTurn(request)
        : { status: 400, error: { type: 'invalid_request_error', message: problem } };
    await answer(turn, request, response);
  };

  const server = createServer((incoming, response) => {
    handle(incoming, response).catch((error: unknown) => {
      if (!response.destroyed) violations.push(`the wire server failed: ${String(error)}`);
      response.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    violations,
    push: (...more) => {
      turns.push(...more);
    },
    request: async (index) => {
      const known = requests[index];
      if (known !== undefined) return known;
      return new Promise((resolve) => {
        waiters.set(index, [...(waiters.get(index) ?? []), resolve]);
      });
    },
    close: async () => {
      await closeServer(server);
      if (options.allowViolations !== true && violations.length > 0) {
        throw new Error(`the API would have refused:\n${violations.join('\n')}`);
      }
    },
  };
}

/** A text block, in the given pieces. */
export function text(...chunks: readonly string[]): WireStep {
  return { kind: 'text', chunks };
}

/** A thinking block with its signature. */
export function thinking(chunk: string, signature = 'c2lnbmF0dXJl'): WireStep {
  return { kind: 'thinking', chunks: [chunk], signature };
}

/** A tool call; `input` is streamed as JSON in two pieces. */
export function toolUse(name: string, input: unknown, id?: string): WireStep {
  const json = JSON.stringify(input);
  const middle = Math.ceil(json.length / 2);
  return {
    kind: 'tool',
    name,
    chunks: [json.slice(0, middle), json.slice(middle)],
    ...(id === undefined ? {} : { id }),
  };
}

/** An answer of only text. */
export function reply(words: string, usage?: WireUsage): WireAnswer {
  return { steps: [text(words)], ...(usage === undefined ? {} : { usage }) };
}

/** An answer that calls tools. */
export function calls(...steps: readonly WireStep[]): WireAnswer {
  return { steps };
}

async function answer(
  turn: WireTurn,
  request: WireRequest,
  response: ServerResponse,
): Promise<void> {
  if (turn === 'hang') return;
  if (turn === 'reset') {
    response.socket?.resetAndDestroy();
    return;
  }
  if ('status' in turn) {
    const json = JSON.stringify({
      type: 'error',
      error: turn.error ?? { type: 'api_error', message: 'failed' },
    });
    const type = turn.body === undefined ? 'application/json' : 'text/html';
    response.writeHead(turn.status, {
      'content-type': type,
      'request-id': `req_${request.index}`,
      ...turn.headers,
    });
    response.end(turn.body ?? json);
    return;
  }
  if ('pieces' in turn) {
    response.writeHead(200, { 'content-type': turn.contentType ?? 'text/event-stream' });
    for (const piece of turn.pieces) {
      await writeFully(response, piece);
      // each piece in a separate packet
      await new Promise(setImmediate);
    }
    response.end();
    return;
  }
  await stream(turn, request, response);
}

async function stream(
  turn: WireAnswer,
  request: WireRequest,
  response: ServerResponse,
): Promise<void> {
  response.writeHead(200, {
    'content-type': turn.contentType ?? 'text/event-stream; charset=utf-8',
    'request-id': `req_${request.index}`,
  });
  const send = (event: string, data: object): void => {
    response.write(`event: ${event}\ndata: ${JSON.stringify({ type: event, ...data })}\n\n`);
  };
  const { output_tokens = 5, ...inputs } = { input_tokens: 10, ...turn.usage };
  send('message_start', {
    message: {
      id: `msg_${request.index}`,
      type: 'message',
      role: 'assistant',
      model: turn.model ?? request.body.model,
      content: [],
      stop_reason: null,
      usage: { ...inputs, output_tokens: 1 },
    },
  });
  let index = 0;
  for (const step of turn.steps) {
    if (response.destroyed) return;
    if (step.kind === 'reset') {
      // what was written must arrive before the connection dies
      await new Promise((resolve) => response.write(': last words\n\n', resolve));
      response.socket?.resetAndDestroy();
      return;
    }
    if (step.kind === 'truncate') {
      response.end();
      return;
    }
    if (step.kind === 'error') {
      send('error', { error: { type: step.type, message: step.message } });
      response.end();
      return;
    }
    if (step.kind === 'wait') await step.until;
    else if (step.kind === 'raw') await writeFully(response, step.bytes);
    else if (step.kind === 'ping') send('ping', {});
    else {
      sendBlock(send, step, index, request.index);
      index += 1;
    }
  }
  const usesTool = turn.steps.some(({ kind }) => kind === 'tool');
  const stop_reason =
    turn.stop_reason === undefined ? (usesTool ? 'tool_use' : 'end_turn') : turn.stop_reason;
  send('message_delta', { delta: { stop_reason, stop_sequence: null }, usage: { output_tokens } });
  send('message_stop', {});
  response.end();
}

type BlockStep = Extract<WireStep, { kind: 'text' | 'thinking' | 'redacted' | 'tool' }>;
type Send = (event: string, data: object) => void;

function sendBlock(send: Send, step: BlockStep, index: number, requestIndex: number): void {
  const delta = (body: object): void => send('content_block_delta', { index, delta: body });
  switch (step.kind) {
    case 'text':
      send('content_block_start', { index, content_block: { type: 'text', text: '' } });
      for (const chunk of step.chunks) delta({ type: 'text_delta', text: chunk });
      break;
    case 'thinking':
      send('content_block_start', {
        index,
        content_block: { type: 'thinking', thinking: '', signature: '' },
      });
      for (const chunk of step.chunks) delta({ type: 'thinking_delta', thinking: chunk });
      if (step.signature !== undefined)
        delta({ type: 'signature_delta', signature: step.signature });
      break;
    case 'redacted':
      send('content_block_start', {
        index,
        content_block: { type: 'redacted_thinking', data: step.data },
      });
      break;
    case 'tool': {
      const id = step.id ?? `toolu_${requestIndex}_${index}`;
      send('content_block_start', {
        index,
        content_block: { type: 'tool_use', id, name: step.name, input: {} },
      });
      for (const chunk of step.chunks) delta({ type: 'input_json_delta', partial_json: chunk });
      break;
    }
  }
  send('content_block_stop', { index });
}

/** Writes with back-pressure: settles only when the client took it, or left. */
async function writeFully(response: ServerResponse, bytes: string | Uint8Array): Promise<void> {
  if (response.write(bytes) || response.destroyed) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      response.off('drain', done);
      response.off('close', done);
      resolve();
    };
    response.once('drain', done);
    response.once('close', done);
  });
}

async function readAll(incoming: IncomingMessage): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Uint8Array);
  return Buffer.concat(chunks).toString('utf8');
}

async function closeServer(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
  server.closeAllConnections();
  await closed;
}
