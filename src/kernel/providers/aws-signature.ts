import { createHash, createHmac } from 'node:crypto';
import type { AwsCredentials } from './endpoint.ts';

const ALGORITHM = 'AWS4-HMAC-SHA256';

/** A request as Signature Version 4 sees it. Header names are in lower case. */
export interface SignableRequest {
  readonly method: string;
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Names the key of a signature and the moment of signing. */
export interface SigningScope {
  readonly credentials: AwsCredentials;
  readonly service: string;
  readonly nowMs: number;
}

/**
 * Returns the headers of Signature Version 4 for a request: `x-amz-date`, the session token, and `authorization`, which
 * covers the host and all given headers.
 */
export function awsHeaders(
  request: SignableRequest,
  { credentials, service, nowMs }: SigningScope,
): Readonly<Record<string, string>> {
  const { accessKeyId, secretAccessKey, sessionToken, region } = credentials;
  const date = new Date(nowMs).toISOString().replaceAll(/[-:]|\.\d+/g, '');
  const day = date.slice(0, 8);
  const added = {
    'x-amz-date': date,
    ...(sessionToken === undefined ? {} : { 'x-amz-security-token': sessionToken }),
  };
  const signed = Object.entries({ ...request.headers, ...added, host: request.url.host })
    .map(([name, value]) => [name, value.trim().replaceAll(/ +/g, ' ')] as const)
    .toSorted(([left], [right]) => compare(left, right));
  const names = signed.map(([name]) => name).join(';');
  const canonical = [
    request.method,
    canonicalPath(request.url),
    canonicalQuery(request.url),
    ...signed.map(([name, value]) => `${name}:${value}`),
    '',
    names,
    sha256(request.body),
  ].join('\n');
  const scope = `${day}/${region}/${service}/aws4_request`;
  const text = [ALGORITHM, date, scope, sha256(canonical)].join('\n');
  let key: Buffer | string = `AWS4${secretAccessKey}`;
  for (const part of [day, region, service, 'aws4_request']) key = hmac(key, part);
  const signature = hmac(key, text).toString('hex');
  const authorization = `${ALGORITHM} Credential=${accessKeyId}/${scope}, SignedHeaders=${names}, Signature=${signature}`;
  return { ...added, authorization };
}

/** Wraps a `fetch` so that it signs each request with the current time; it takes only bodies that are texts. */
export function signedFetch(
  inner: typeof fetch,
  scope: Omit<SigningScope, 'nowMs'> & { readonly now: () => number },
): typeof fetch {
  const { now, ...rest } = scope;
  return async (input, init = {}) => {
    const url = new URL(input instanceof Request ? input.url : input);
    const body = typeof init.body === 'string' ? init.body : '';
    const headers = new Headers(init.headers);
    const type = headers.get('content-type');
    const request = {
      method: (init.method ?? 'GET').toUpperCase(),
      url,
      // a proxy may change other headers, so they are not signed
      headers: type === null ? {} : { 'content-type': type },
      body,
    };
    const added = awsHeaders(request, { ...rest, nowMs: now() });
    for (const [name, value] of Object.entries(added)) headers.set(name, value);
    return await inner(url, { ...init, headers });
  };
}

/** Each segment is encoded twice, as every service but S3 expects; the URL has done it once. */
function canonicalPath({ pathname }: URL): string {
  return pathname.split('/').map(encode).join('/');
}

function canonicalQuery({ searchParams }: URL): string {
  return [...searchParams]
    .map(([name, value]) => [encode(name), encode(value)] as const)
    .toSorted(([a, b], [c, d]) => compare(a, c) || compare(b, d))
    .map((pair) => pair.join('='))
    .join('&');
}

/** RFC 3986: everything but unreserved characters. */
function encode(text: string): string {
  return encodeURIComponent(text).replaceAll(
    /[!'()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function compare(left: string, right: string): number {
  return left < right ? -1 : Number(left > right);
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function hmac(key: Buffer | string, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
