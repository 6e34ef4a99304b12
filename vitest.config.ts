import { defineConfig } from 'vitest/config';
import { definitions } from './scripts/define.mjs';

/** Rooms whose tests leave nothing behind in their process: their files share workers and load the program once. */
const SHARED = [
  'test/{app,cli,core,disk,export,hooks,items,log,loop,pi,policy,providers,schemas,threads,tools,trust}/**/*.test.ts',
];
/** These measure the memory of their process, or depend on it. */
const MEMORY = [
  'test/loop/model-call.test.ts',
  'test/threads/idle-process.test.ts',
  'test/tools/builtin/read.test.ts',
];

export default defineConfig({
  define: await definitions(),
  test: {
    projects: [
      {
        extends: true,
        test: { name: 'shared', include: SHARED, exclude: MEMORY, isolate: false },
      },
      {
        extends: true,
        test: { name: 'alone', include: ['test/**/*.test.ts'], exclude: SHARED },
      },
      { extends: true, test: { name: 'memory', include: MEMORY } },
    ],
    globalSetup: ['test/helpers/cli-package-setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    // most tests wait for processes that they started, so that one worker a core leaves the cores idle
    maxWorkers: 3,
    // real processes on a shared machine: a lost race for the processor is not a defect
    retry: process.env['CI'] ? 2 : 0,
  },
});
