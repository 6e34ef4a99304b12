import { afterEach } from 'vitest';

/**
 * Under `RYE_TWICE=1` the first attempt of each test fails at its end, so that a run shows which tests cannot succeed when
 * they are tried again: those that depend on the files of the first attempt.
 */
afterEach(({ task }) => {
  const attempt = task.result?.retryCount ?? 0;
  if (attempt === 0 && task.result?.state !== 'fail') throw new Error('once more');
});
