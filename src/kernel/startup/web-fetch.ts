import { Readable } from 'node:stream';
import { fieldsOf, hasNetworkVariables, send } from './http-fetch.ts';
import type { Env } from './proxy.ts';

/** Statuses of answers that have no body. */
const BODILESS = new Set([204, 205, 304]);

/** The headers that the platform's `fetch` adds. */
const DEFAULTS = { accept: '*/*', 'user-agent': 'node' };

/**
 * The platform's `fetch`, by way of the proxy and with the certificates that the environment names. With them, it
 * accepts text bodies only and follows no redirect.
 */
export async function webFetch(
  address: string | URL,
  init: RequestInit,
  env: Env,
): Promise<Response> {
  if (!hasNetworkVariables(env)) return await fetch(address, init);
  const headers = { ...DEFAULTS, ...Object.fromEntries(new Headers(init.headers)) };
  try {
    const { message, stream } = await send(new URL(address), { ...init, headers }, { env });
    const { statusCode: status = 0, statusMessage: statusText = '' } = message;
    const body = BODILESS.has(status) ? null : (Readable.toWeb(stream) as ReadableStream);
    return new Response(body, { status, statusText, headers: fieldsOf(message) });
  } catch (error) {
    init.signal?.throwIfAborted();
    throw error;
  }
}
