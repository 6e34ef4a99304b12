import type * as http from 'node:http';
import type { Agent, ClientRequest, IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type { Env } from './proxy.ts';
import type { Way } from './tunnel.ts';

/** Closes idle connections before common servers do, which is after 5 s: a request must not hit a closing connection. */
const IDLE_MS = 4000;
/** Maximum bytes read from an error body. */
const MAX_ERROR_BYTES = 1 << 20;
/** Milliseconds to wait in the background for the end of an answer that was read. */
const LINGER_MS = 1000;

/** The streamed body of a successful answer. Leaving the iteration early closes the connection. */
export interface AnswerBody extends AsyncIterable<Uint8Array> {
  /** Declares the answer read: aborts no longer affect its connection, which is reused once the answer ends. */
  letGo(): void;
}

interface HttpOptions {
  /** Time for a connection, with its name and its encryption; 0: as long as the system waits. */
  readonly connectMs?: number;
  /** Names proxies and certificates; absent: there are none. */
  readonly env?: Env;
}

const NETWORK_VARIABLES =
  'http_proxy HTTP_PROXY https_proxy HTTPS_PROXY all_proxy ALL_PROXY NODE_EXTRA_CA_CERTS SSL_CERT_FILE SSL_CERT_DIR'.split(
    ' ',
  );

/** True if a variable names a proxy or certificates. */
export function hasNetworkVariables(env: Env): boolean {
  return NETWORK_VARIABLES.some((name) => (env[name] ?? '') !== '');
}

/** The longest delay of a timer. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/**
 * The `fetch` for the vendors' SDKs, on Node's own HTTP client: the platform's `fetch` compiles a second HTTP parser into
 * each process, which costs more time and memory than all of rye. It accepts text bodies only and follows no redirect,
 * because that would send the key to another host. {@link bodyOf} returns the body of a successful response; failed ones
 * have `text()`.
 */
export async function httpFetch(
  address: string | URL | Request,
  init: RequestInit = {},
  options: HttpOptions = {},
): Promise<Response> {
  const url = new URL(typeof address === 'object' && 'url' in address ? address.url : address);
  const { message, stream, stop } = await send(url, init, options);
  const { statusCode: status = 0, statusMessage: statusText = '' } = message;
  if (status >= 300 && status < 400) return redirected(url.host, message);
  const body = new Body(stream, stop);
  const fields = fieldsOf(message);
  if (status >= 400) {
    return new Response(await textOf(body), { status, statusText, headers: fields });
  }
  // the SDKs only read its status and its headers
  return new GoodAnswer(message, body, new PlainHeaders(fields)) as unknown as Response;
}

/** Sends a request whose body is a text; resolves once the headers of the answer have come. `stream` is its body, decoded. */
export async function send(
  url: URL,
  init: RequestInit,
  { connectMs = 0, env = {} }: HttpOptions,
): Promise<{ message: IncomingMessage; stream: Readable; stop: Stop }> {
  const stop = new Stop(init.signal);
  const way = hasNetworkVariables(env)
    ? (await import('./tunnel.ts')).wayTo(url, env, { ...AGENT, connectMs })
    : undefined;
  const message = await ask(url, { ...init, connectMs, way }, stop);
  way?.asked?.assertAllowed(message);
  return { message, stream: await decoded(message), stop };
}

/** Returns the body of a successful response; undefined if {@link httpFetch} did not make it. */
export function bodyOf(response: Response): AnswerBody | undefined {
  return response instanceof GoodAnswer ? response.bytes : undefined;
}

/** The used part of a `Response`: the platform's class loads its whole `fetch`, and copies what it streams. */
class GoodAnswer {
  readonly ok = true;
  readonly status: number;
  readonly statusText: string;
  readonly headers: PlainHeaders;
  readonly bytes: AnswerBody;

  constructor(message: IncomingMessage, bytes: AnswerBody, headers: PlainHeaders) {
    this.status = message.statusCode ?? 0;
    this.statusText = message.statusMessage ?? '';
    this.headers = headers;
    this.bytes = bytes;
  }
}

type Client = Pick<typeof http, 'request' | 'Agent'>;

interface Connections {
  readonly client: Client;
  readonly agent: Agent;
}

/** By protocol: an import costs each request a search for its module. */
const connections = new Map<string, Promise<Connections>>();

const AGENT = { keepAlive: true, scheduling: 'lifo', timeout: IDLE_MS } as const;

async function connect(protocol: string): Promise<Connections> {
  const client: Client =
    protocol === 'https:' ? await import('node:https') : await import('node:http');
  return { client, agent: new client.Agent(AGENT) };
}

/** Ends a request: on its signal, until the answer is read, or on demand. */
export class Stop {
  readonly #signal: AbortSignal | null | undefined;
  readonly #now = (): void => this.now();
  #request: ClientRequest | undefined;

  constructor(signal: AbortSignal | null | undefined) {
    signal?.throwIfAborted();
    this.#signal = signal;
  }

  // with the signal itself, the client would throw an uncaught error for an answer that has just ended
  watch(request: ClientRequest): void {
    this.#request = request;
    this.#signal?.addEventListener('abort', this.#now, { once: true });
    if (this.#signal?.aborted === true) this.now();
  }

  now(): void {
    this.#request?.destroy();
  }

  ignoreSignal(): void {
    this.#signal?.removeEventListener('abort', this.#now);
  }
}

class Body implements AnswerBody {
  readonly #stream: Readable;
  readonly #stop: Stop;
  #isRead = false;

  constructor(stream: Readable, stop: Stop) {
    this.#stream = stream;
    this.#stop = stop;
  }

  [Symbol.asyncIterator](): AsyncIterator<Uint8Array> {
    const pieces = this.#stream.iterator({ destroyOnReturn: false });
    return {
      next: () => pieces.next(),
      return: async () => {
        await pieces.return?.();
        if (this.#isRead) this.#drain();
        else this.#stop.now();
        return { value: undefined, done: true };
      },
    };
  }

  letGo(): void {
    this.#isRead = true;
    this.#stop.ignoreSignal();
  }

  /** As a rule the end is here already, in the piece that brought the last event. */
  #drain(): void {
    if (this.#stream.closed) return;
    const timer = setTimeout(() => this.#stop.now(), LINGER_MS).unref();
    this.#stream.once('close', () => clearTimeout(timer));
    this.#stream.resume();
  }
}

async function ask(
  url: URL,
  {
    method,
    headers,
    body,
    connectMs,
    way,
  }: RequestInit & { readonly connectMs: number; readonly way: Way | undefined },
  stop: Stop,
) {
  const text = body ?? '';
  if (typeof text !== 'string') throw new TypeError('the body of a request must be a text');
  const connecting = connections.get(url.protocol) ?? connect(url.protocol);
  connections.set(url.protocol, connecting);
  const { client, agent } = await connecting;
  return await new Promise<IncomingMessage>((resolve, reject) => {
    const request = client.request(url, {
      agent: way?.agent ?? agent,
      method,
      headers: {
        'accept-encoding': 'identity',
        ...Object.fromEntries(new PlainHeaders(headers)),
        ...way?.asked?.headers,
      },
      ...(way?.asked ? { path: withoutFragment(url) } : {}),
    });
    stop.watch(request);
    if (connectMs > 0) limitConnecting(request, connectMs);
    request.once('response', resolve);
    // a failure after the headers surfaces through the body stream
    request.on('error', reject);
    request.end(text);
  });
}

function withoutFragment({ href, hash }: URL): string {
  return href.slice(0, href.length - hash.length);
}

/** Ends a request whose connection takes too long. One that is used again is ready at once. */
function limitConnecting(request: ClientRequest, connectMs: number): void {
  request.once('socket', (socket) => {
    if (!socket.connecting) return;
    const timer = setTimeout(
      () => {
        const error = new Error('no connection in time');
        request.destroy(Object.assign(error, { code: 'ETIMEDOUT' }));
      },
      Math.min(connectMs, MAX_DELAY_MS),
    );
    const ready = 'encrypted' in socket ? 'secureConnect' : 'connect';
    for (const event of [ready, 'close']) socket.once(event, () => clearTimeout(timer));
  });
}

export function fieldsOf({ headersDistinct }: IncomingMessage): [string, string][] {
  return Object.entries(headersDistinct).flatMap(([name, values = []]) =>
    values.map((value): [string, string] => [name, value]),
  );
}

/** Makes an error response that names the host of the redirect; the SDKs read it as the provider's own error. */
function redirected(host: string, message: IncomingMessage): Response {
  message.destroy();
  const { location = '' } = message.headers;
  const where = URL.canParse(location) ? new URL(location).origin : 'another address';
  const error = {
    type: 'redirected',
    message: `${host} redirects to ${where}, which is not followed`,
  };
  return Response.json({ type: 'error', error }, { status: message.statusCode ?? 0 });
}

/** Servers, and proxies before them, may encode what was asked for as it is. */
async function decoded(message: IncomingMessage): Promise<Readable> {
  const coding = message.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (coding === 'identity' || coding === '') return message;
  const { constants, createBrotliDecompress, createGunzip, createInflate } = await import(
    'node:zlib'
  );
  // each piece is passed on when it comes; the codec would wait for more
  const flush = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH };
  const decoders: Readonly<Record<string, () => ReturnType<typeof createGunzip>>> = {
    gzip: () => createGunzip(flush),
    'x-gzip': () => createGunzip(flush),
    deflate: () => createInflate(flush),
    br: () => createBrotliDecompress({ flush: constants.BROTLI_OPERATION_FLUSH }),
  };
  const open = Object.hasOwn(decoders, coding) ? decoders[coding] : undefined;
  if (open === undefined) {
    message.destroy();
    throw new Error(`the answer has the unknown encoding ${coding}`);
  }
  const { pipeline } = await import('node:stream');
  // its reader learns of a failure from the decoder
  return pipeline(message, open(), () => undefined);
}

export async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > MAX_ERROR_BYTES) break;
  }
  return Buffer.concat(chunks).toString('utf8');
}

type Init = Iterable<readonly string[]> | Readonly<Record<string, string | readonly string[]>>;

/**
 * Header fields as a vendor's SDK uses the `Headers` of the platform. Those bring the whole `fetch` of the platform along, which
 * costs a process 20 ms and 8 MiB; the build replaces them by this class (`startup/plugins.mjs`). Names are
 * compared in lower case, values of one name joined by commas (RFC 9110, 5.3).
 */
export class PlainHeaders implements Iterable<[string, string]> {
  readonly #fields = new Map<string, string>();

  constructor(init: Init = []) {
    const fields = Symbol.iterator in init ? init : Object.entries(init);
    for (const [name, value] of fields as Iterable<readonly [string, string | string[]]>) {
      for (const one of [value].flat()) this.append(name, one);
    }
  }

  append(name: string, value: string): void {
    const before = this.get(name);
    const added = value.trim();
    this.#fields.set(name.toLowerCase(), before === null ? added : `${before}, ${added}`);
  }

  set(name: string, value: string): void {
    this.#fields.set(name.toLowerCase(), value.trim());
  }

  get(name: string): string | null {
    return this.#fields.get(name.toLowerCase()) ?? null;
  }

  has(name: string): boolean {
    return this.#fields.has(name.toLowerCase());
  }

  delete(name: string): void {
    this.#fields.delete(name.toLowerCase());
  }

  forEach(visit: (value: string, name: string) => void): void {
    for (const [name, value] of this) visit(value, name);
  }

  entries(): IterableIterator<[string, string]> {
    return this[Symbol.iterator]();
  }

  [Symbol.iterator](): IterableIterator<[string, string]> {
    return [...this.#fields].toSorted(([a], [b]) => (a < b ? -1 : 1)).values();
  }
}
