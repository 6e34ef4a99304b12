import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** An answer that is streamed at a pace, as a provider writes it. */
export interface MeteredAnswer {
  /** Tokens in a second. */
  readonly rate: number;
  /** Milliseconds before the first one. */
  readonly delayMs?: number;
  /** Tokens that the model thinks first and does not show. */
  readonly hidden?: number;
  readonly tokens: number;
}

/** A call that was answered, with what was written to its connection until it ended. */
export interface MeteredCall {
  readonly inputTokens: number;
  readonly maxTokens: number;
  /** Output tokens, counted as they are written; hidden ones too. */
  sent: number;
  /** Resolves once so many are sent, or the connection has ended. */
  reaches(tokens: number): Promise<void>;
  readonly ended: Promise<void>;
}

export interface MeteredServer {
  readonly url: string;
  readonly calls: readonly MeteredCall[];
  call(index: number): Promise<MeteredCall>;
  close(): Promise<void>;
}

/** Bytes of a token, as a tokenizer counts prose. */
const TOKEN_BYTES = 4;
const PROSE =
  'The river had been quiet for years, and nobody in the village remembered why its bridge was built of two kinds of stone. ';
const TICK_MS = 20;

/** Starts an Anthropic API on loopback that writes answers at a pace and counts what it wrote, as a bill would. */
export async function startMeteredServer(
  answer: (call: number) => MeteredAnswer,
): Promise<MeteredServer> {
  const calls: Metered[] = [];
  let onCall: (() => void) | undefined;
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString('utf8');
      const { max_tokens: maxTokens } = JSON.parse(text) as { max_tokens: number };
      const call = new Metered(Math.ceil(text.length / TOKEN_BYTES), maxTokens, response);
      calls.push(call);
      call.write(answer(calls.length - 1));
      onCall?.();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    call: async (index) => {
      while (calls.length <= index) {
        await new Promise<void>((resolve) => {
          onCall = resolve;
        });
      }
      return calls[index] as MeteredCall;
    },
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

class Metered implements MeteredCall {
  readonly inputTokens: number;
  readonly maxTokens: number;
  sent = 0;
  readonly ended: Promise<void>;
  readonly #response: ServerResponse;
  readonly #waiting: { readonly tokens: number; readonly resolve: () => void }[] = [];
  #isOver = false;

  constructor(inputTokens: number, maxTokens: number, response: ServerResponse) {
    this.inputTokens = inputTokens;
    this.maxTokens = maxTokens;
    this.#response = response;
    this.ended = new Promise((resolve) => {
      response.on('close', () => {
        this.#isOver = true;
        this.#wake();
        resolve();
      });
    });
  }

  reaches(tokens: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push({ tokens, resolve });
      this.#wake();
    });
  }

  #wake(): void {
    for (const { tokens, resolve } of this.#waiting) {
      if (this.#isOver || this.sent >= tokens) resolve();
    }
  }

  write({ rate, delayMs = 0, hidden = 0, tokens }: MeteredAnswer): void {
    this.#response.writeHead(200, { 'content-type': 'text/event-stream' });
    const usage = { input_tokens: this.inputTokens, output_tokens: 0 };
    const message = { id: 'm', type: 'message', role: 'assistant', model: 'm', content: [] };
    this.#event('message_start', { message: { ...message, stop_reason: null, usage } });
    const block = { type: 'text', text: '' };
    this.#event('content_block_start', { index: 0, content_block: block });
    const total = hidden + tokens;
    const beginMs = performance.now() + delayMs;
    const timer = setInterval(() => {
      const due = Math.min(total, Math.floor(((performance.now() - beginMs) / 1000) * rate));
      if (this.#isOver || due <= this.sent) return;
      const shown = Math.max(0, due - hidden) - Math.max(0, this.sent - hidden);
      if (shown > 0) this.#text(Math.max(0, this.sent - hidden), shown);
      this.sent = due;
      this.#wake();
      if (due === total) this.#finish();
    }, TICK_MS);
    this.#response.on('close', () => clearInterval(timer));
  }

  #text(from: number, tokens: number): void {
    const length = tokens * TOKEN_BYTES;
    const start = (from * TOKEN_BYTES) % PROSE.length;
    const text = PROSE.repeat(2 + Math.ceil(length / PROSE.length)).slice(start, start + length);
    this.#event('content_block_delta', { index: 0, delta: { type: 'text_delta', text } });
  }

  #finish(): void {
    this.#event('content_block_stop', { index: 0 });
    const delta = { stop_reason: 'end_turn' };
    this.#event('message_delta', { delta, usage: { output_tokens: this.sent } });
    this.#event('message_stop', {});
    this.#response.end();
  }

  #event(type: string, members: object): void {
    this.#response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`);
  }
}
