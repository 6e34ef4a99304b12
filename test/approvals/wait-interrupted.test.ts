import { expect, it } from 'vitest';
import { openFakeTerminal } from '../helpers/fake-terminal.ts';
import { calls, house, marks } from './house.ts';

it('threads wait tells an interruption from a timeout, and from a thread that waits for a person', async () => {
  const here = await house(calls(marks('out')));
  const { threadId } = await here.asks();
  const wait = async (words: readonly string[], isInterrupted: boolean) => {
    const terminal = openFakeTerminal(['threads', 'wait', threadId, ...words], {
      cwd: here.project,
      env: here.env,
    });
    if (isInterrupted) terminal.interrupt();
    return await terminal.ended;
  };
  expect(await wait(['--approvals'], true)).toBe(130);
  expect(await wait(['--approvals', '--json'], true)).toBe(130);
  expect(await wait(['--approvals', '--timeout', '0'], false)).toBe(5);
  expect(await wait([], false)).toBe(1);
});
