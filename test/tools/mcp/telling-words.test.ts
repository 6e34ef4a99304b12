import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { tellingWords } from '../../../src/features/mcp/stdio.ts';

const PYTHON = `Traceback (most recent call last):
  File "server.py", line 1, in <module>
    import absent
ModuleNotFoundError: No module named 'absent'
`;

describe('tellingWords', () => {
  it('finds the error in the stack trace of a Node that misses its module', () => {
    const { stderr } = spawnSync(process.execPath, ['/nonexistent.js'], { encoding: 'utf8' });
    expect(stderr).toContain('at ');
    expect(tellingWords(stderr)).toBe("Error: Cannot find module '/nonexistent.js'");
  });

  it.each([
    ['a Python traceback', PYTHON, "ModuleNotFoundError: No module named 'absent'"],
    ['a log before the error', 'starting up\nerror: port in use\nbye\n', 'error: port in use'],
    ['text without an error', 'no\n  luck\t today\n', 'no luck today'],
    ['nothing', ' \n', ''],
    ['a text that is too long', 'word '.repeat(100), `${'word '.repeat(59).trimEnd()}…`],
    ['one endless word', 'x'.repeat(400), `${'x'.repeat(299)}…`],
  ])('keeps what matters of %s', (_name, stderr, expected) => {
    expect(tellingWords(stderr)).toBe(expected);
    expect(tellingWords(stderr).length).toBeLessThanOrEqual(300);
  });
});
