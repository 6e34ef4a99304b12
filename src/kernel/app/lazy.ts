/** A method that can be forwarded before the implementation is there: it returns a promise, or a stream. */
type Later = (...args: never[]) => Promise<unknown> | AsyncIterable<unknown>;

/**
 * What a lazy service needs beside its implementation: `stream` for each method that returns one, the members that return
 * neither a promise nor a stream, and any other member that has an implementation already.
 */
type Members<S> = {
  readonly [M in keyof S as S[M] extends (...args: never[]) => AsyncIterable<unknown>
    ? M
    : never]: 'stream';
} & { readonly [M in keyof S as S[M] extends Later ? never : M]: S[M] } & {
  readonly [M in keyof S as S[M] extends (...args: never[]) => Promise<unknown> ? M : never]?: S[M];
};

/** Names that programs look for on any value: a promise, a value with a form as JSON, a matcher of a test runner. */
const PROTOCOLS: ReadonlySet<string> = new Set([
  'then',
  'toJSON',
  'asymmetricMatch',
  '$$typeof',
  'nodeType',
]);

/**
 * Returns a service that loads its implementation with the first call of a method, so that opening rye stays cheap.
 * A name that the implementation lacks is found at the call, which is rejected.
 */
export function lazy<S extends object>(load: () => Promise<Partial<S>>, members: Members<S>): S {
  let loading: Promise<Partial<S>> | undefined;
  const call = async (name: string, args: readonly unknown[]): Promise<unknown> => {
    loading ??= load();
    const service = await loading;
    const method: unknown = Reflect.get(service, name);
    if (typeof method !== 'function') throw new TypeError(`the service has no method ${name}`);
    return Reflect.apply(method, service, args);
  };
  const known = new Map<string, unknown>(Object.entries(members));
  return new Proxy({} as S, {
    get: (target, name) => {
      if (typeof name === 'symbol' || name in target || PROTOCOLS.has(name)) {
        return Reflect.get(target, name) as unknown;
      }
      const own = known.get(name) ?? (async (...args: unknown[]) => await call(name, args));
      if (own !== 'stream') {
        known.set(name, own);
        return own;
      }
      return async function* stream(...args: readonly unknown[]): AsyncGenerator {
        yield* (await call(name, args)) as AsyncIterable<unknown>;
      };
    },
  });
}
