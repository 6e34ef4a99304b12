import { BlockList, isIP } from 'node:net';
import { RyeError } from '../core/errors.ts';

export type Env = Readonly<Record<string, string | undefined>>;

/** The proxy for an address, and the variable that names it. */
export interface Proxy {
  readonly url: URL;
  readonly variable: string;
}

/**
 * Returns the proxy for an address by the variables that curl and git read: `https_proxy` or `http_proxy`, then `all_proxy`, each
 * in lower case first, unless `no_proxy` names the host. Undefined: the address is called directly. Throws `proxy_refused`
 * for a proxy that can't be used.
 */
export function proxyFor(target: URL, env: Env): Proxy | undefined {
  const scheme = target.protocol.slice(0, -1);
  const variable = namesFor(scheme, env).find((name) => (env[name] ?? '').trim() !== '');
  if (variable === undefined) return undefined;
  const proxy = { url: proxyUrl(env[variable] ?? '', variable), variable };
  const host = hostOf(target);
  // another machine's proxy would look for this address on itself
  if (isLoopback(host) && !isLoopback(hostOf(proxy.url))) return undefined;
  const port = target.port || (scheme === 'https' ? '443' : '80');
  const exceptions = env['no_proxy'] || env['NO_PROXY'] || '';
  return isExcepted(host, port, exceptions) ? undefined : proxy;
}

function namesFor(scheme: string, env: Env): readonly string[] {
  const names = [`${scheme}_proxy`, `${scheme.toUpperCase()}_PROXY`, 'all_proxy', 'ALL_PROXY'];
  // a CGI server makes HTTP_PROXY of the request's header `Proxy`
  return env['REQUEST_METHOD'] === undefined
    ? names
    : names.filter((name) => name !== 'HTTP_PROXY');
}

/** Names a proxy without its user and password. */
export function shownProxy({ url, variable }: Proxy): string {
  return `the proxy ${url.protocol}//${url.host} (${variable})`;
}

function proxyUrl(value: string, variable: string): URL {
  const text = value.trim();
  const whole = text.includes('://') ? text : `http://${text}`;
  const url = URL.canParse(whole) ? new URL(whole) : undefined;
  if (url !== undefined && /^https?:$/.test(url.protocol) && url.hostname !== '') return url;
  const isSocks = /^socks/i.test(text);
  throw new RyeError(
    'proxy_refused',
    `${variable} ${isSocks ? 'names a SOCKS proxy, which rye does not speak to' : 'is not the address of a proxy'}`,
    { hint: `Set ${variable} to an address such as http://proxy.example.com:3128.` },
  );
}

function hostOf({ hostname }: URL): string {
  return hostname
    .replaceAll(/^\[|\]$/g, '')
    .replace(/\.$/, '')
    .toLowerCase();
}

function isLoopback(host: string): boolean {
  return /^(?:.+\.)?localhost$/.test(host) || /^127(?:\.\d+){3}$/.test(host) || host === '::1';
}

/**
 * True if a list of exceptions names a host: `*`, a domain with or without a leading dot or `*.`, which covers its subdomains, an
 * address, a network such as `10.0.0.0/8`, each with or without a port.
 */
function isExcepted(host: string, port: string, list: string): boolean {
  return list
    .toLowerCase()
    .split(/[\s,]+/)
    .some((entry) => entry !== '' && matches(entry, host, port));
}

const WITH_PORT = /^(?<name>\[[^\]]+\]|[^:]+):(?<only>\d+)$/;

function matches(entry: string, host: string, port: string): boolean {
  const { name: named = entry, only = port } = WITH_PORT.exec(entry)?.groups ?? {};
  if (only !== port) return false;
  const name = named.replaceAll(/^\[|\]$/g, '');
  if (name === '*' || name === host) return true;
  const family = isIP(host);
  if (family !== 0) return isInNetwork(host, family === 6 ? 'ipv6' : 'ipv4', name);
  const domain = name.replaceAll(/^\*?\.|\.$/g, '');
  return domain !== '' && (host === domain || host.endsWith(`.${domain}`));
}

function isInNetwork(host: string, family: 'ipv4' | 'ipv6', name: string): boolean {
  const [address = '', bits = family === 'ipv6' ? '128' : '32'] = name.split('/');
  const size = Number(bits);
  if (isIP(address) !== (family === 'ipv6' ? 6 : 4)) return isPrefix(host, name);
  if (!/^\d+$/.test(bits) || size > (family === 'ipv6' ? 128 : 32)) return false;
  const network = new BlockList();
  network.addSubnet(address, size, family);
  return network.check(host, family);
}

/** True for the beginning of an address such as `192.168.` or `192.168.*`, which many lists have. */
function isPrefix(host: string, name: string): boolean {
  const [, start] = /^(\d[\d.]*\.)\*?$/.exec(name) ?? [];
  return start !== undefined && host.startsWith(start);
}
