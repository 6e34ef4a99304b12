import { RyeError } from '../core/errors.ts';

const PROTOCOLS: ReadonlySet<string> = new Set(['postgres:', 'postgresql:']);
/** Parameters of a connection string that can hold a secret. */
const SECRETS: ReadonlySet<string> = new Set(['password', 'sslpassword']);
const HIDDEN = '***';

/** The URL of a database, without its password in anything that people see. */
export interface StoreUrl {
  /** The URL as it is given to the driver. */
  readonly href: string;
  /** The URL with each secret replaced by `***`. */
  readonly shown: string;
  readonly hasSecret: boolean;
}

/** Reads the URL of a store. Throws `config_invalid`, without the text: a mistyped URL may hold a password too. */
export function parseStoreUrl(text: string): StoreUrl {
  const url = parsed(text);
  if (!url || !PROTOCOLS.has(url.protocol) || url.hostname === '' || url.pathname.length < 2) {
    throw new RyeError('config_invalid', 'store.url is not the URL of a PostgreSQL database', {
      hint: 'Write postgres://USER@HOST:5432/DATABASE. `rye config get store.url` shows where it is set.',
    });
  }
  const shown = new URL(url.href);
  let hasSecret = url.password !== '';
  if (hasSecret) shown.password = HIDDEN;
  for (const name of url.searchParams.keys()) {
    if (!SECRETS.has(name)) continue;
    hasSecret = true;
    shown.searchParams.set(name, HIDDEN);
  }
  return { href: text, shown: shown.href, hasSecret };
}

/** Returns a URL without its secrets; a text that is no URL of a store is hidden as a whole. */
export function withoutSecrets(text: string): string {
  try {
    return parseStoreUrl(text).shown;
  } catch {
    return text === '' ? '' : HIDDEN;
  }
}

function parsed(text: string): URL | undefined {
  try {
    return new URL(text);
  } catch {
    return undefined;
  }
}
