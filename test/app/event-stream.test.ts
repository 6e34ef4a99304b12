import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { EventStream } from '../../src/kernel/app/library-run.ts';

it('gives each iteration what is pushed after its start', async () => {
  const stream = new EventStream<number>();
  const first = stream.iterate();
  stream.push(1);
  const second = stream.iterate();
  stream.push(2);
  stream.end();
  const read: number[][] = [[], []];
  for await (const value of first) read[0]?.push(value);
  for await (const value of second) read[1]?.push(value);
  expect(read).toEqual([[1, 2], [2]]);
});

it('keeps no values for an iteration that ends before it began', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const stream = new EventStream<object>();
  await stream.iterate().return();
  const pushed = ((): WeakRef<object> => {
    const value = { large: true };
    stream.push(value);
    return new WeakRef(value);
  })();
  // a weak reference holds its target until the end of the job that made it
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  expect(pushed.deref()).toBeUndefined();
  stream.end();
});
