/** The methods of a service, and if each returns a promise or a stream. Other members cannot be loaded later. */
export type Methods<S> = {
  readonly [M in keyof S]: S[M] extends (...args: never[]) => AsyncIterable<unknown>
    ? 'stream'
    : S[M] extends (...args: never[]) => Promise<unknown>
      ? 'promise'
      : never;
};

/** Returns a service that loads its implementation with the first call of a method, so that opening rye stays cheap. */
export function lazy<S extends object>(load: () => Promise<S>, methods: Methods<S>): S {
  let loading: Promise<S> | undefined;
  const call = async (name: string, args: readonly unknown[]): Promise<unknown> => {
    loading ??= load();
    const service = await loading;
    const method: unknown = Reflect.get(service, name);
    if (typeof method !== 'function') throw new TypeError(`the service has no method ${name}`);
    return Reflect.apply(method, service, args);
  };
  const forwarded = Object.entries(methods).map(([name, returns]) => [
    name,
    returns === 'stream'
      ? async function* stream(...args: readonly unknown[]): AsyncGenerator {
          yield* (await call(name, args)) as AsyncIterable<unknown>;
        }
      : async (...args: readonly unknown[]) => await call(name, args),
  ]);
  return Object.fromEntries(forwarded) as S;
}
