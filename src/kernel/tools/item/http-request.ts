import { RyeError } from '../../core/errors.ts';
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from '../../core/json.ts';
import { escapeXml } from '../../core/text.ts';
import {
  bodySyntax,
  type HttpTemplate,
  isWholeParameter,
  REFERENCE,
} from '../../items/tool-http.ts';
import { webFetch } from '../../startup/web-fetch.ts';
import { scrubText, scrubValue } from '../secrets.ts';
import { timeoutSignal } from '../timer.ts';
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
  const timeout = timeoutSignal(Math.ceil(call.timeoutSeconds * 1000));
  const secrets = [...used];
  try {
    const init = {
      method: call.request.method,
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body }),
      redirect: 'manual' as const,
      signal: AbortSignal.any([timeout.signal, call.context.signal]),
    };
    return await present(call.id, await webFetch(url, init, call.env), secrets);
  } catch (error) {
    if (error instanceof RyeError) throw error;
    return errorOutput(scrubText(`${call.id} ${failureOf(error, call, timeout.signal)}`, secrets));
  } finally {
    timeout.stop();
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

/** Encodes a value for its place in a template. */
type Encode = (
  text: string,
  place: { readonly value: JsonValue; readonly offset: number },
) => string;

/** `used` collects the values of variables, which must not come back in the text of the answer. */
function fill(
  text: string,
  call: HttpCall,
  used: Set<string>,
  encode: Encode = (plain) => plain,
): string {
  const { input } = call;
  return text.replaceAll(REFERENCE, (all, ...found) => {
    const [variable, fallback, name, offset = 0] = found as [string?, string?, string?, number?];
    if (variable !== undefined) {
      const plain = variableOf(variable, fallback, call, used);
      return encode(plain, { value: parseJson(plain) ?? plain, offset });
    }
    if (name === undefined) return all;
    if (name === 'params_json') return encode(JSON.stringify(input), { value: input, offset });
    if (!Object.hasOwn(input, name)) return encode('', { value: null, offset });
    return encode(parameterText(input[name]), { value: input[name] ?? null, offset });
  });
}

/** Returns the encoding of a body that is written as text. */
function bodyEncoding(body: string, { id, request }: HttpCall): Encode {
  switch (bodySyntax(body, request.headers)) {
    case 'json':
      return (text, { value, offset }) =>
        isInString(body, offset) ? JSON.stringify(text).slice(1, -1) : JSON.stringify(value);
    case 'form':
      return (text) => encodeURIComponent(text);
    case 'xml':
      return (text) => escapeXml(text);
    case 'text':
      return (text) => text;
    case undefined:
      break;
  }
  return () => {
    throw new RyeError('invalid_input', `${id}: values cannot be put safely into its body`, {
      hint: 'Write the body as a mapping in the manifest, or name its content-type.',
    });
  };
}

/** True if a place of a JSON text is inside a string. */
function isInString(json: string, offset: number): boolean {
  const quotes = [...json.slice(0, offset).matchAll(/\\.|"/g)].filter(([one]) => one === '"');
  return quotes.length % 2 === 1;
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
  if (typeof body === 'string' && !isWholeParameter(body)) {
    return fill(body, call, used, bodyEncoding(body, call));
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
