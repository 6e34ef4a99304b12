import { describe, expect, test } from 'vitest';
import { lazy } from '../../src/kernel/app/lazy.ts';

interface Counter {
  add(by: number): Promise<number>;
  upTo(end: number): AsyncIterable<number>;
}

class Counting implements Counter {
  #sum = 0;

  async add(by: number): Promise<number> {
    this.#sum += by;
    return this.#sum;
  }

  async *upTo(end: number): AsyncIterable<number> {
    for (let next = this.#sum; next <= end; next += 1) yield next;
  }
}

describe('a lazy service', () => {
  test('loads its implementation once, with the first call', async () => {
    let loads = 0;
    const counter = lazy<Counter>(
      async () => {
        loads += 1;
        return new Counting();
      },
      { upTo: 'stream' },
    );
    expect(loads).toBe(0);
    await Promise.all([counter.add(1), counter.add(2)]);
    expect(await counter.add(3)).toBe(6);
    expect(loads).toBe(1);
  });

  test('streams values, also from a method that is called first', async () => {
    const { upTo } = lazy<Counter>(async () => new Counting(), { upTo: 'stream' });
    const values: number[] = [];
    for await (const value of upTo(2)) values.push(value);
    expect(values).toEqual([0, 1, 2]);
  });

  test('rejects calls if its implementation does not load', async () => {
    const counter = lazy<Counter>(async () => await Promise.reject(new Error('no such module')), {
      upTo: 'stream',
    });
    await expect(counter.add(1)).rejects.toThrow('no such module');
  });

  test('uses the members that it is given, and is neither a promise nor JSON', async () => {
    const counter = lazy<Counter>(async () => new Counting(), {
      upTo: 'stream',
      add: async (by) => by * 10,
    });
    expect(await counter.add(1)).toBe(10);
    expect(await Promise.resolve(counter)).toBe(counter);
    expect(JSON.stringify({ counter })).toBe('{"counter":{}}');
    expect(Reflect.get(counter, 'toString')).toBe(Object.prototype.toString);
    await expect(Reflect.get(counter, 'gone')()).rejects.toThrow('no method gone');
  });

  test('does not compile without the names of its streams, and without its direct members', () => {
    // @ts-expect-error `upTo` returns a stream
    lazy<Counter>(async () => new Counting(), {});
    // @ts-expect-error `size` returns no promise
    lazy<{ size(): number }>(async () => ({ size: () => 1 }), {});
  });
});
