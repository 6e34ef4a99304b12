import { RyeError } from '../../core/errors.ts';
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from '../../core/json.ts';
import type { HttpTemplate } from '../../items/tool-http.ts';
import { scrubText, scrubValue } from '../secrets.ts';
import { errorOutput, type ToolContext, type ToolOutput, textOutput } from '../tool.ts';
import { parameterText } from './runtimes.ts';

/** A body above this is refused as a whole: half of a JSON document is of no use. */
const MAX_BODY_BYTES = 1024 * 1024;

export interface HttpCall {
  readonly id: string;
  readonly request: HttpTemplate;
  readonly input: JsonObject;
  readonly secrets: readonly string[];
  readonly timeoutSeconds: number;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Hosts that may be reached; absent: any. */
  readonly allowDomains?: readonly string[] | undefined;
  readonly context: ToolContext;
}

/**
 * Sends the request of a tool. The manifest's signature fixes scheme and host; redirects are not followed, because they would lead to
 * another host with the credentials. A status of 400 or more is an error output.
 */
export async function sendRequest(call: HttpCall): Promise<ToolOutput> {
  const used = new Set(call.secrets);
  const url = urlOf(call, used);
  const headers = headersOf(call, used);
  const body = bodyOf(call, used);
  assertReachable(call, url, used.size > 0);
  const timeout = AbortSignal.timeout(Math.ceil(call.timeoutSeconds * 1000));
  const secrets = [...used];
  try {
    const response = await fetch(url, {
      method: call.request.method,
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body }),
      redirect: 'manual',
      signal: AbortSignal.any([timeout, call.context.signal]),
    });
    return await present(call.id, response, secrets);
  } catch (error) {
    if (error instanceof RyeError) throw error;
    return errorOutput(scrubText(`${call.id} ${failureOf(error, call, timeout)}`, secrets));
  }
}

function failureOf(
  error: unknown,
  { timeoutSeconds, context }: HttpCall,
  timeout: AbortSignal,
): string {
  const { aborted, reason } = context.signal;
  const isLate = timeout.aborted || (reason instanceof Error && reason.name === 'TimeoutError');
  if (aborted && !isLate) return 'was cancelled.';
  if (isLate) return `got no answer within ${timeoutSeconds} seconds.`;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return `got no answer: ${cause instanceof Error ? cause.message : String(cause)}.`;
}

/** Replaces `${NAME}` and `{parameter}` in one pass, so that no value is expanded again. */
const REFERENCE = /\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}|\{([A-Za-z_]\w*)\}/g;

/** `used` collects the values of variables, which must not come back in the text of the answer. */
function fill(
  text: string,
  call: HttpCall,
  used: Set<string>,
  encode: (text: string) => string = (plain) => plain,
): string {
  return text.replaceAll(
    REFERENCE,
    (all, variable: string | undefined, fallback: string | undefined, name: string | undefined) => {
      if (variable !== undefined) return encode(variableOf(variable, fallback, call, used));
      if (name === 'params_json') return encode(JSON.stringify(call.input));
      if (name === undefined || !Object.hasOwn(call.input, name))
        return name === undefined ? all : '';
      return encode(parameterText(call.input[name]));
    },
  );
}

function variableOf(
  name: string,
  fallback: string | undefined,
  call: HttpCall,
  used: Set<string>,
): string {
  const value = call.env[name];
  if (value !== undefined && value !== '') {
    used.add(value);
    return value;
  }
  if (fallback !== undefined) return fallback;
  throw new RyeError('invalid_input', `${call.id} needs the variable ${name}, which is not set`, {
    hint: `Set ${name} in the environment or in ~/.ai/.env.`,
  });
}

function urlOf(call: HttpCall, used: Set<string>): URL {
  const encode = (text: string): string => {
    // "." and ".." would climb out of the path although they need no encoding
    if (/^\.{1,2}$/.test(text)) {
      throw new RyeError('invalid_input', `${call.id}: a parameter of the URL is "${text}"`, {
        hint: 'Give the name itself.',
      });
    }
    return encodeURIComponent(text);
  };
  const { url } = call.request;
  const address = new URL(fill(url, call, used, encode));
  const fixed = new URL(url.replaceAll(/[{}$]/g, '_'));
  if (address.origin === fixed.origin) return address;
  throw new RyeError('invalid_input', `${call.id}: the parameters change the host of the URL`);
}

function headersOf(call: HttpCall, used: Set<string>): Record<string, string> {
  const encode = (text: string): string => {
    if (/^[\t\u0020-\u007E\u0080-\u00FF]*$/.test(text)) return text;
    throw new RyeError('invalid_input', `${call.id}: a header cannot carry this value`, {
      hint: 'Use one line of Latin-1 text.',
    });
  };
  return Object.fromEntries(
    Object.entries(call.request.headers).map(([name, text]) => [
      name,
      fill(text, call, used, encode),
    ]),
  );
}

function bodyOf(call: HttpCall, used: Set<string>): string | undefined {
  const { body, method } = call.request;
  if (method === 'GET' || method === 'HEAD') return undefined;
  if (body === undefined) return JSON.stringify(call.input);
  if (typeof body === 'string' && !/^\{[A-Za-z_]\w*\}$/.test(body)) {
    return fill(body, call, used);
  }
  return JSON.stringify(filledValue(body, call, used));
}

/** A string that is exactly one parameter keeps the type of its value; a member whose parameter is absent is dropped. */
function filledValue(value: JsonValue, call: HttpCall, used: Set<string>): JsonValue | undefined {
  if (typeof value === 'string') {
    const whole = /^\{([A-Za-z_]\w*)\}$/.exec(value)?.[1];
    if (whole === 'params_json') return call.input;
    if (whole !== undefined) {
      return Object.hasOwn(call.input, whole) ? call.input[whole] : undefined;
    }
    return fill(value, call, used);
  }
  if (Array.isArray(value)) {
    return value.flatMap((item: JsonValue) => filledValue(item, call, used) ?? []);
  }
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, member]) => {
      const filled = member === undefined ? undefined : filledValue(member, call, used);
      return filled === undefined ? [] : [[key, filled]];
    }),
  );
}

/** A credential needs an encrypted connection unless it stays on this machine; a sandbox lists the hosts. */
function assertReachable({ id, allowDomains }: HttpCall, url: URL, hasSecrets: boolean): void {
  const isLocal = /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
  if (hasSecrets && url.protocol !== 'https:' && !isLocal) {
    throw new RyeError(
      'invalid_input',
      `${id} would send a credential over plain HTTP to ${url.host}`,
      { hint: 'Write https:// in the manifest.' },
    );
  }
  if (allowDomains === undefined || allowDomains.some((domain) => isWithin(url.hostname, domain)))
    return;
  throw new RyeError(
    'sandbox_unavailable',
    `${id} may not reach ${url.hostname}: the sandbox does not list it`,
    { hint: `Add ${url.hostname} to tools.allow_domains in agent/resilience.yaml.` },
  );
}

function isWithin(host: string, domain: string): boolean {
  return domain.startsWith('*.') ? host.endsWith(domain.slice(1)) : host === domain;
}

async function present(
  id: string,
  response: Response,
  secrets: readonly string[],
): Promise<ToolOutput> {
  const { status } = response;
  if (status >= 300 && status < 400) {
    await response.body?.cancel();
    const target = scrubText(response.headers.get('location') ?? 'nowhere', secrets);
    return errorOutput(
      `${id} got a redirect (HTTP ${status}) to ${target}, which is not followed. Write that address into the manifest if it is right.`,
      { status },
    );
  }
  const text = await boundedText(response);
  if (text === undefined) {
    return errorOutput(`${id} got more than ${MAX_BODY_BYTES} bytes.`, { status });
  }
  const parsed = parseJson(text);
  const body = parsed === undefined ? scrubText(text, secrets) : scrubValue(parsed, secrets);
  const shown = typeof body === 'string' ? body : JSON.stringify(body, null, 2);
  const data = { status, body };
  if (status >= 400) return errorOutput(`${id} failed with HTTP ${status}.\n${shown}`.trim(), data);
  return textOutput(shown === '' ? `(HTTP ${status}, no content)` : shown, data);
}

async function boundedText(response: Response): Promise<string | undefined> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of response.body ?? []) {
    length += chunk.length;
    // leaving the loop cancels the stream
    if (length > MAX_BODY_BYTES) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
