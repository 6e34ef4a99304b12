import { defineConfig } from 'vitest/config';
import { definitions } from './scripts/define.mjs';

export default defineConfig({
  define: await definitions(),
  test: {
    include: ['test/**/*.test.ts'],
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
