import { expect, test } from 'vitest';
import { runningFan } from './fan.ts';

const LIMIT = 300_000;

test(
  'threads open shows the first message, the price of a turn and what children work on, follows, and enters a child',
  async () => {
    const { open, release } = await runningFan();
    const terminal = await open(100, 30);
    terminal.run('threads open fan-demo');
    await terminal.shows('this thread is running: press f to follow it');
    await terminal.shows(/\n› ● user {2}Do fan/);
    await terminal.shows(/ model I will \*fan\* out\./);
    terminal.press('f');
    await terminal.shows('· following');
    release();
    await terminal.shows(/›.*◆ model Report There/);
    await terminal.shows('the run has ended');
    await terminal.shows(/ model I will .*\$0\.00\d+ · \d/);
    expect(terminal.screen()).toContain('There are two failures.');
    terminal.press('g', 'Down', 'Down');
    await terminal.shows(
      /› ● tool {2}summarize docs20\/f01\.txt → [^]*Enter opens thread summarize-/,
    );
    terminal.press('Enter');
    await terminal.shows(/^fan-demo › summarize-\w{4} /);
    await terminal.shows(/◆ model Summary The/);
    terminal.press('BSpace');
    await terminal.shows(/^fan-demo \[1/);
    terminal.resize(60, 30);
    await terminal.shows(/^[^│]*› ● tool {2}summarize docs20[^│]*$/);
    terminal.press('q');
    await terminal.shows('exit=0');
  },
  LIMIT,
);
