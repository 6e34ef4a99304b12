type Init = Iterable<readonly [string, string]> | Readonly<Record<string, string>>;

/**
 * Header fields as a vendor's SDK uses the `Headers` of the platform. Those bring the whole `fetch` of the platform along, which
 * costs a process 20 ms and 8 MiB; the build puts these in their place (`scripts/plain-headers-plugin.mjs`). Names are
 * compared in lower case, values of one name joined by commas (RFC 9110, 5.3).
 */
export class PlainHeaders implements Iterable<[string, string]> {
  readonly #fields = new Map<string, string>();

  constructor(init: Init = []) {
    const fields = Symbol.iterator in init ? init : Object.entries(init);
    for (const [name, value] of fields as Iterable<readonly [string, string]>) {
      this.append(name, value);
    }
  }

  append(name: string, value: string): void {
    const before = this.get(name);
    const added = value.trim();
    this.#fields.set(name.toLowerCase(), before === null ? added : `${before}, ${added}`);
  }

  set(name: string, value: string): void {
    this.#fields.set(name.toLowerCase(), value.trim());
  }

  get(name: string): string | null {
    return this.#fields.get(name.toLowerCase()) ?? null;
  }

  has(name: string): boolean {
    return this.#fields.has(name.toLowerCase());
  }

  delete(name: string): void {
    this.#fields.delete(name.toLowerCase());
  }

  forEach(visit: (value: string, name: string) => void): void {
    for (const [name, value] of this) visit(value, name);
  }

  entries(): IterableIterator<[string, string]> {
    return this[Symbol.iterator]();
  }

  [Symbol.iterator](): IterableIterator<[string, string]> {
    return [...this.#fields].toSorted(([a], [b]) => (a < b ? -1 : 1)).values();
  }
}
