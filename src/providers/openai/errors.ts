import { isRecord, parseJson } from '../../core/json.ts';
import { isDailyQuota } from '../failure.ts';

/**
 * Returns a `fetch` whose failed responses have their error where the SDK reads it: `{error: {message, type, code}}`. Servers
 * also put it in a list (Gemini), at the top (Mistral, vLLM), or send only a text (LM Studio).
 */
export const fetchWithError =
  (plain: typeof fetch): typeof fetch =>
  async (input, init) => {
    const response = await plain(input, init);
    if (response.ok) return response;
    const { status } = response;
    const headers = new Headers(response.headers);
    const text = await response.text();
    const parsed = parseJson(text);
    const body = Array.isArray(parsed) ? parsed[0] : parsed;
    const error = isRecord(body) ? errorOf(body) : undefined;
    if (error === undefined) return new Response(text, { status, headers });
    if (isDailyQuota(error['details'])) error['type'] = 'quota_exceeded';
    const wait = retryDelay(error['details']);
    if (wait !== undefined && !headers.has('retry-after')) headers.set('retry-after', wait);
    return Response.json({ error }, { status, headers });
  };

/** Returns the error of a body in the usual form; undefined if it has none. */
function errorOf(body: Record<string, unknown>): Record<string, unknown> | undefined {
  const { error } = body;
  if (isRecord(error)) {
    const { status, type, code } = error;
    // Google names the kind of error in `status`, and repeats the HTTP status in `code`
    const isNamed = typeof type === 'string' || typeof code === 'string';
    return isNamed || typeof status !== 'string' ? error : { ...error, type: status };
  }
  const message = [error, body['message'], body['detail']].map(asText).find((one) => one !== '');
  return message === undefined ? undefined : { message, type: body['type'] };
}

/** A message is a text, or a list of the members that were refused. */
function asText(value: unknown): string {
  if (typeof value === 'string') return value;
  return isRecord(value) || Array.isArray(value) ? JSON.stringify(value) : '';
}

/** Returns the seconds that Google's `RetryInfo` asks to wait, such as `34.07` for the delay `34.07s`. */
function retryDelay(details: unknown): string | undefined {
  if (!Array.isArray(details)) return undefined;
  const delays = details.filter(isRecord).map(({ retryDelay: delay }) => delay);
  const delay = delays.find((one) => typeof one === 'string');
  return /^(\d+(?:\.\d+)?)s$/.exec(delay ?? '')?.[1];
}
