// A loop that dies by its own hand after one use of the registry: no handler runs, nothing is recorded.
import process from 'node:process';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { Registry } from '../../src/kernel/storage/store.ts';
import { openRye } from '../../src/open-rye.ts';

const [project = '', home = '', program = '', now = '', point = '', times = '1'] =
  process.argv.slice(2);
let left = Number(times);

function mortal(registry: Registry): Registry {
  return new Proxy(registry, {
    get: (target, name) => {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== 'function') return member;
      return async (...args: unknown[]) => {
        const result: unknown = await Reflect.apply(member, target, args);
        if (name === point) left -= 1;
        if (left === 0) process.kill(process.pid, 'SIGKILL');
        return result;
      };
    },
  });
}

const rye = openRye({
  projectPath: project,
  userSpacePath: home,
  env: { PATH: process.env['PATH'], HOME: home },
  program: [program],
  clock: {
    now: () => Date.parse(now),
    monotonic: () => performance.now(),
    sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  },
  store: ({ projectPath, clock, ids }) => {
    const store = openStore({ projectPath, clock, ids });
    return {
      ...store,
      registry: mortal(store.registry),
      close: (options) => store.close(options),
    };
  },
});
await rye.schedules.serve({ signal: new AbortController().signal });
