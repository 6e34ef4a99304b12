import { expect, test } from 'vitest';
import { runningFan, steady } from './fan.ts';

const LIMIT = 300_000;

test(
  'threads tree shows a fan of 20 children at 60, 100 and 200 columns, to a pipe and while it runs',
  async () => {
    const { here, open, release } = await runningFan();
    for (const columns of [60, 100, 200]) {
      const terminal = await open(columns);
      terminal.run('threads tree fan-demo');
      await terminal.shows('exit=0');
      await expect(steady(terminal.screen())).toMatchFileSnapshot(
        `../golden/screens/tree-${columns}.txt`,
      );
      terminal.run('threads tree');
      await terminal.shows(/^● fan-demo {2}17\/20 [^]*exit=0/);
    }

    const { stdout } = await here.rye(['threads', 'tree', 'fan-demo']);
    expect(stdout).toMatch(
      /^├─ ✓ summarize {2}docs20\/f01\.txt {2}\S+ +\$0\.000\d+ +completed {2}summarize-\w{4}$/m,
    );
    expect(stdout).toMatch(
      /^├─ ✗ summarize {2}docs20\/f07\.txt .* error {2}summarize-\w{4} {2}f07 is too large \[provider_rejected\]$/m,
    );
    expect(stdout).not.toContain('\u001b');

    const terminal = await open(100);
    terminal.run('threads tree fan-demo --watch');
    await terminal.shows(
      /├─ ● summarize {2}docs20\/f12\.txt [^]*\n19\/20 done \(2 failed\) · 1 running · \$0\.00/,
    );
    release();
    await terminal.shows(
      /^✓ fan-demo [^]*\n20\/20 done \(2 failed\) · \$0\.00\S*\nopen: rye threads open fan-demo\nexit=0/,
    );
    expect(terminal.screen().match(/docs20\/f12/g)).toHaveLength(1);
  },
  LIMIT,
);

test(
  'threads tree --watch redraws at the width of now, folds on a low screen, and has no color with NO_COLOR',
  async () => {
    const { open } = await runningFan();
    const terminal = await open(100, 12);
    terminal.run('threads tree fan-demo --watch');
    await terminal.shows(/├─ 17 completed, 2 error [^]*\n└─ ● summarize {2}docs20\/f12\.txt/);
    terminal.resize(48, 12);
    await terminal.shows(/└─ ● summarize {2}docs20\/f12\.txt .*\n19\/20 done \(2 failed\)/);
    expect(terminal.colors()).toContain('\u001b[3');
    terminal.press('C-c');
    await terminal.shows('exit=130');
    terminal.run('threads tree fan-demo --no-color');
    await terminal.shows('exit=0');
    expect(terminal.colors()).not.toContain('\u001b[3');
  },
  LIMIT,
);
