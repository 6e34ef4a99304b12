import { X509Certificate } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import http, { type Agent, type AgentOptions, type IncomingMessage } from 'node:http';
import https from 'node:https';
import { connect, isIP, type Socket } from 'node:net';
import { delimiter, join } from 'node:path';
import type { Duplex } from 'node:stream';
import tls from 'node:tls';
import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';
import { type Env, type Proxy, proxyFor, shownProxy } from './proxy.ts';

/** The way to an address that does not lead there directly, or with Node's certificates alone. */
export interface Way {
  readonly agent: Agent;
  /** Present for a proxy that is asked for the whole address: what it gets beside the request. */
  readonly asked?: {
    readonly headers: Readonly<Record<string, string>>;
    /** Throws if the proxy refused the request. */
    assertAllowed(answer: IncomingMessage): void;
  };
}

export interface TunnelOptions extends AgentOptions {
  /** Milliseconds for a connection, by way of the proxy; 0: as long as the system waits. */
  readonly connectMs: number;
}

/** By everything that it depends on. */
const agents = new Map<string, Agent>();

/**
 * Returns the way to an address by the variables of proxies and certificates; undefined for the direct one. Throws
 * `proxy_refused` and `ca_unreadable` for variables that can't be used.
 */
export function wayTo(target: URL, env: Env, options: TunnelOptions): Way | undefined {
  const proxy = proxyFor(target, env);
  const isTls = target.protocol === 'https:';
  const needsCa = isTls || proxy?.url.protocol === 'https:';
  const files = needsCa ? CA_VARIABLES.map((name) => env[name] ?? '') : [];
  if (proxy === undefined && files.every((file) => file === '')) return undefined;
  const key = JSON.stringify([isTls, proxy?.url.href, proxy?.variable, files, options.connectMs]);
  const agent = agents.get(key) ?? agentFor(isTls, proxy, authorities(env, needsCa), options);
  agents.set(key, agent);
  if (proxy === undefined || isTls) return { agent };
  return {
    agent,
    asked: {
      headers: authorization(proxy),
      assertAllowed: (answer) => {
        if (answer.statusCode === AUTHENTICATION_REQUIRED) throw refusal(proxy, answer);
      },
    },
  };
}

function agentFor(
  isTls: boolean,
  proxy: Proxy | undefined,
  ca: string[] | undefined,
  options: TunnelOptions,
): Agent {
  if (proxy === undefined) return new https.Agent({ ...options, ...(ca ? { ca } : {}) });
  return isTls ? new TunnelAgent(proxy, ca, options) : new AskingAgent(proxy, ca, options);
}

type Connected = (error: Error | null, stream: Duplex) => void;

/** Connects to a proxy, which is asked for whole addresses. */
class AskingAgent extends http.Agent {
  readonly #proxy: Proxy;
  readonly #ca: string[] | undefined;
  readonly #connectMs: number;

  constructor(proxy: Proxy, ca: string[] | undefined, { connectMs, ...options }: TunnelOptions) {
    super(options);
    this.#proxy = proxy;
    this.#ca = ca;
    this.#connectMs = connectMs;
  }

  override createConnection(_options: unknown, callback?: Connected): undefined {
    const { protocol, hostname, port } = this.#proxy.url;
    const host = hostname.replaceAll(/^\[|\]$/g, '');
    const isTls = protocol === 'https:';
    const socket: Socket = isTls
      ? tls.connect({ ...place(host, port || '443'), ...serverName(host), ...caOf(this.#ca) })
      : connect(place(host, port || '80'));
    const timer = limit(this.#connectMs, (error) => socket.destroy(error));
    const fail = (error: Error): void => {
      clearTimeout(timer);
      callback?.(unreachable(this.#proxy, error), undefined as never);
    };
    socket.once('error', fail);
    socket.once(isTls ? 'secureConnect' : 'connect', () => {
      clearTimeout(timer);
      socket.off('error', fail);
      callback?.(null, socket);
    });
  }
}

/** Connects to servers by a tunnel, which the proxy opens on `CONNECT`; the encryption is with the server. */
class TunnelAgent extends https.Agent {
  readonly #proxy: Proxy;
  readonly #ca: string[] | undefined;
  readonly #connectMs: number;

  constructor(proxy: Proxy, ca: string[] | undefined, { connectMs, ...options }: TunnelOptions) {
    super(options);
    this.#proxy = proxy;
    this.#ca = ca;
    this.#connectMs = connectMs;
  }

  override createConnection(options: tls.ConnectionOptions, callback?: Connected): undefined {
    const { host = '', port = 443 } = options;
    let open: { destroy(error?: Error): unknown } | undefined;
    const timer = limit(this.#connectMs, (error) => open?.destroy(error));
    const fail = (error: Error): void => {
      clearTimeout(timer);
      callback?.(error, undefined as never);
    };
    const server = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
    const request = connectRequest(this.#proxy, server, this.#ca);
    open = request;
    request.once('error', (error) => fail(unreachable(this.#proxy, error)));
    request.once('connect', (answer, socket, head) => {
      if (answer.statusCode !== CONNECTED) {
        socket.destroy();
        fail(refusal(this.#proxy, answer));
        return;
      }
      if (head.length > 0) socket.unshift(head);
      const secure = tls.connect({ ...serverName(host), ...caOf(this.#ca), socket });
      open = secure;
      secure.once('error', fail);
      secure.once('secureConnect', () => {
        clearTimeout(timer);
        secure.off('error', fail);
        callback?.(null, secure);
      });
    });
    request.end();
  }
}

function connectRequest(proxy: Proxy, server: string, ca: string[] | undefined) {
  const { protocol, hostname, port } = proxy.url;
  const host = hostname.replaceAll(/^\[|\]$/g, '');
  const options = {
    method: 'CONNECT',
    host,
    port: port || (protocol === 'https:' ? '443' : '80'),
    path: server,
    headers: { host: server, ...authorization(proxy) },
    agent: false as const,
  };
  return protocol === 'https:'
    ? https.request({ ...options, ...serverName(host), ...caOf(ca) })
    : http.request(options);
}

const CONNECTED = 200;
const AUTHENTICATION_REQUIRED = 407;

function place(host: string, port: string): { readonly host: string; readonly port: number } {
  return { host, port: Number(port) };
}

function serverName(host: string): { readonly servername: string } {
  return { servername: isIP(host) === 0 ? host : '' };
}

function caOf(ca: string[] | undefined): { readonly ca?: string[] } {
  return ca === undefined ? {} : { ca };
}

function limit(connectMs: number, end: (error: Error) => void): NodeJS.Timeout | undefined {
  if (connectMs <= 0) return undefined;
  const error = Object.assign(new Error('no connection in time'), { code: 'ETIMEDOUT' });
  return setTimeout(() => end(error), connectMs);
}

function authorization({ url }: Proxy): Record<string, string> {
  const { username, password } = url;
  if (username === '' && password === '') return {};
  const pair = `${decoded(username)}:${decoded(password)}`;
  return { 'proxy-authorization': `Basic ${Buffer.from(pair).toString('base64')}` };
}

/** A password with a plain percent sign is no encoding. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function refusal(proxy: Proxy, { statusCode = 0, statusMessage = '' }: IncomingMessage): RyeError {
  const { variable, url } = proxy;
  if (statusCode === AUTHENTICATION_REQUIRED) {
    const isAnonymous = url.username === '' && url.password === '';
    const what = isAnonymous ? 'asks for a user and a password' : 'refuses its user and password';
    return new RyeError('proxy_refused', `${shownProxy(proxy)} ${what} (407)`, {
      hint: `Set ${variable}=http://USER:PASSWORD@${url.host}; encode other characters as in %40.`,
    });
  }
  const status = `${statusCode} ${statusMessage}`.trim();
  const code = statusCode >= 500 ? 'proxy_unreachable' : 'proxy_refused';
  return new RyeError(code, `${shownProxy(proxy)} opens no way there: ${status}`, {
    hint: `Ask for access, or add the host to NO_PROXY.`,
  });
}

function unreachable(proxy: Proxy, error: Error): RyeError {
  const why = systemCodeOf(error) ?? messageOf(error);
  return new RyeError('proxy_unreachable', `${shownProxy(proxy)} does not answer: ${why}`, {
    hint: `Correct ${proxy.variable}, or unset it.`,
    cause: error,
  });
}

const CA_VARIABLES = ['SSL_CERT_FILE', 'SSL_CERT_DIR', 'NODE_EXTRA_CA_CERTS'] as const;
const CERTIFICATE = /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[^]+?-----END [A-Z0-9 ]+-----/g;

/**
 * Returns the certificates of the trusted authorities: `SSL_CERT_FILE` replaces Node's certificates, as in OpenSSL, and
 * `SSL_CERT_DIR` and `NODE_EXTRA_CA_CERTS` add to them.
 */
function authorities(env: Env, isNeeded: boolean): string[] | undefined {
  const [file = '', folders = '', extra = ''] = CA_VARIABLES.map((name) => env[name] ?? '');
  if (!isNeeded || [file, folders, extra].every((value) => value === '')) return undefined;
  const own = file === '' ? ofNode() : certificatesIn(file, 'SSL_CERT_FILE');
  const more = extra === '' ? [] : certificatesIn(extra, 'NODE_EXTRA_CA_CERTS');
  return [...new Set([...own, ...folders.split(delimiter).flatMap(certificatesBelow), ...more])];
}

/** Those that this Node was started with; Node 20 tells only those that it was built with. */
function ofNode(): readonly string[] {
  const { getCACertificates } = tls as { getCACertificates?: (kind: 'default') => string[] };
  return getCACertificates?.('default') ?? tls.rootCertificates;
}

function certificatesIn(file: string, variable: string): readonly string[] {
  let text: string;
  try {
    text = readFileSync(file, 'latin1');
  } catch (error) {
    throw unreadable(variable, `cannot be read: ${systemCodeOf(error) ?? messageOf(error)}`, file);
  }
  const found = usable(text);
  if (found.length === 0) throw unreadable(variable, 'has no certificate in PEM form', file);
  return found;
}

/** As OpenSSL, ignores files of a folder that are no certificates, and folders that are missing. */
function certificatesBelow(folder: string): readonly string[] {
  if (folder === '') return [];
  try {
    return readdirSync(folder).flatMap((name) => {
      try {
        return usable(readFileSync(join(folder, name), 'latin1'));
      } catch {
        return [];
      }
    });
  } catch {
    return [];
  }
}

/** One malformed certificate would make Node refuse all of them. */
function usable(text: string): readonly string[] {
  return (text.match(CERTIFICATE) ?? []).filter((one) => {
    try {
      return new X509Certificate(one).raw.length > 0;
    } catch {
      return false;
    }
  });
}

function unreadable(variable: string, problem: string, file: string): RyeError {
  return new RyeError('ca_unreadable', `${variable} names ${file}, which ${problem}`, {
    hint: `Set ${variable} to a PEM file with certificates, or unset it.`,
  });
}
