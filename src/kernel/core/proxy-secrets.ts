const PROXY_NAMES = /^(?:https?|all|ftp|grpc|rsync)_proxy$/i;
/** Minimum characters of a password that is removed where it occurs alone: shorter ones are words of a text. */
const MIN_PASSWORD = 8;

/** Returns the credentials in the addresses of proxies, in each form in which they occur in texts. */
export function proxySecrets(env: Readonly<Record<string, string | undefined>>): readonly string[] {
  return Object.entries(env).flatMap(([name, value = '']) => {
    if (!PROXY_NAMES.test(name)) return [];
    // a password may have an @, and a malformed address is as secret
    const pair = /^(?:[a-z][a-z0-9+.-]*:\/\/)?([^/]*)@/i.exec(value.trim())?.[1];
    return pair === undefined || pair === '' ? [] : formsOf(pair);
  });
}

function formsOf(pair: string): readonly string[] {
  const plain = decoded(pair);
  const passwords = [pair, plain].map((text) => text.slice(text.indexOf(':') + 1));
  return [
    ...new Set([
      pair,
      plain,
      Buffer.from(plain).toString('base64'),
      ...passwords.filter((password) => password.length >= MIN_PASSWORD),
    ]),
  ];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
