import type * as http from 'node:http';
import type { Agent, ClientRequest, IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';

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

/**
 * The `fetch` for the vendors' SDKs, on Node's own HTTP client: the platform's `fetch` compiles a second HTTP parser into
 * each process, which costs more time and memory than all of rye. It accepts text bodies only and follows no redirect,
 * because that would send the key to another host. {@link bodyOf} returns the body of a successful response; failed ones
 * have `text()`.
 */
export async function httpFetch(
  address: string | URL | Request,
  init: RequestInit = {},
): Promise<Response> {
  const url = new URL(typeof address === 'object' && 'url' in address ? address.url : address);
  const stop = new Stop(init.signal);
  const message = await ask(url, init, stop);
  const { statusCode: status = 0, statusMessage: statusText = '' } = message;
  if (status >= 300 && status < 400) return redirected(url.host, message);
  const body = new Body(await decoded(message), stop);
  const fields = fieldsOf(message);
  if (status >= 400) {
    return new Response(await textOf(body), { status, statusText, headers: fields });
  }
  // the SDKs only read its status and its headers
  return new GoodAnswer(message, body, new PlainHeaders(fields)) as unknown as Response;
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

async function connect(protocol: string): Promise<Connections> {
  const client: Client =
    protocol === 'https:' ? await import('node:https') : await import('node:http');
  const agent = new client.Agent({ keepAlive: true, scheduling: 'lifo', timeout: IDLE_MS });
  return { client, agent };
}

/** Ends a request: on its signal, until the answer is read, or on demand. */
class Stop {
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

async function ask(url: URL, { method, headers, body }: RequestInit, stop: Stop) {
  if (typeof body !== 'string') throw new TypeError('the body of a request must be a text');
  const connecting = connections.get(url.protocol) ?? connect(url.protocol);
  connections.set(url.protocol, connecting);
  const { client, agent } = await connecting;
  return await new Promise<IncomingMessage>((resolve, reject) => {
    const request = client.request(url, {
      agent,
      method,
      headers: { 'accept-encoding': 'identity', ...Object.fromEntries(new PlainHeaders(headers)) },
    });
    stop.watch(request);
    request.once('response', resolve);
    // a failure after the headers surfaces through the body stream
    request.on('error', reject);
    request.end(body);
  });
}

function fieldsOf({ headersDistinct }: IncomingMessage): [string, string][] {
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

async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > MAX_ERROR_BYTES) break;
  }
  return Buffer.concat(chunks).toString('utf8');
}

type Init = Iterable<readonly [string, string]> | Readonly<Record<string, string>>;

/**
 * Header fields as a vendor's SDK uses the `Headers` of the platform. Those bring the whole `fetch` of the platform along, which
 * costs a process 20 ms and 8 MiB; the build replaces them by this class (`startup/plugins.mjs`). Names are
 * compared in lower case, values of one name joined by commas (RFC 9110, 5.3).
 */
export class PlainHeaders implements Iterable<[string, string]> {
  readonly #fields = new Map<string, string>();

  constructor(init: Init = []) {
    const fields = Symbol.iterator in init ? init : Object.entries(init);
    for (const [name, value] of fields as Iterable<readonly [string, string]>) {
      this.append(name, value);
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
