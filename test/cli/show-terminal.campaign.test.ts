import { expect, test } from 'vitest';
import { workspace } from '../helpers/workspace.ts';
import { runningFan } from './fan.ts';

const LIMIT = 300_000;

test(
  'threads show has the state, limits with used and left, cost, children and the next command, and 60 columns are enough',
  async () => {
    const { here, open, release } = await runningFan();
    const { stdout } = await here.rye(['threads', 'show', 'fan-demo']);
    expect(stdout).toMatch(/^status {6}running$/m);
    expect(stdout).toMatch(/^model {7}anthropic\/claude-sonnet-5-5$/m);
    expect(stdout).toMatch(/^limits {6}turns \d of 9, \d left$/m);
    expect(stdout).toMatch(/^ {12}spend \$0\.00\d+ of \$2\.00, \$2\.00 left$/m);
    expect(stdout).toMatch(/^ {12}spawns 20 of 30, 10 left$/m);
    expect(stdout).toMatch(/^cost {8}\$0\.00\d+, \d+ turns, \d+ tokens in all; own /m);
    expect(stdout).toMatch(/^children {4}17 completed, 2 error, 1 running$/m);
    expect(stdout).toMatch(
      /^ {2}✓ summarize {2}docs20\/f01\.txt {2}\S+ +\$0\.00\d+ +completed {2}summarize-\w{4}$/m,
    );
    expect(stdout).not.toContain('\u001b');

    const terminal = await open(60, 60);
    terminal.run('threads show fan-demo');
    await terminal.shows('exit=0');
    const lines = terminal.screen().split('\n');
    expect(lines).toContain('status      ● running');
    expect(lines).toContainEqual(
      expect.stringMatching(/^watch: rye attach fan-demo {4}cancel: rye threads cancel/),
    );
    expect(lines.filter((line) => /^ {2}[✓✗●] summarize {2}docs20/.test(line))).toHaveLength(20);
    release();
    await here.rye(['threads', 'wait', 'fan-demo']);
    terminal.run('threads show fan-demo');
    await terminal.shows(/status {6}✓ completed[^]*\nopen: rye threads open fan-demo\nexit=0/);
  },
  LIMIT,
);

test(
  'the help of threads groups its commands',
  async () => {
    const here = await workspace({ init: false });
    const { stdout } = await here.rye(['threads', '--help']);
    expect(stdout).toMatch(/^Usage: rye threads/);
    expect(stdout.match(/^\w+:$/gm)).toEqual([
      'Options:',
      'Look:',
      'Control:',
      'Session:',
      'Maintain:',
      'Examples:',
    ]);
  },
  LIMIT,
);
