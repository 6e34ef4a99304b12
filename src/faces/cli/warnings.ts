import type { Io } from '../ui/io.ts';

const noticed = new WeakMap<Io['stdout'], string[]>();

/** Keeps a warning of this call for its JSON document. */
export function noteWarning({ stdout }: Pick<Io, 'stdout'>, warning: string): void {
  noticed.set(stdout, [...(noticed.get(stdout) ?? []), warning]);
}

/** Returns a JSON document with `warnings`: its own and the call's, each once; empty if there are none. */
export function withWarnings<T extends object>(
  { stdout }: Pick<Io, 'stdout'>,
  document: T,
): T & { readonly warnings: readonly string[] } {
  const own = 'warnings' in document && Array.isArray(document.warnings) ? document.warnings : [];
  const all: readonly string[] = [...own, ...(noticed.get(stdout) ?? [])];
  return { ...document, warnings: [...new Set(all)] };
}
