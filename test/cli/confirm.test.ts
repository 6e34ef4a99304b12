import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { confirm } from '../../src/faces/cli/input.ts';
import { oneLine } from '../../src/faces/ui/visible.ts';
import { generateKeyPair, readPrivateKey } from '../../src/kernel/trust/keys.ts';
import { createFakeIo } from '../helpers/fake-io.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage, runCli } from '../helpers/run-cli.ts';

const { privatePem, publicPem } = generateKeyPair();
const { keyId } = readPrivateKey(privatePem, 'a colleague');

let folder: string;
beforeAll(async () => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-confirm-')));
  writeFileSync(path.join(folder, 'alice.pem'), publicPem);
  await runCli(['keys', 'init'], { cwd: folder });
});
afterAll(() => {
  removeFolder(folder);
});

/** Runs rye on a new pseudo-terminal and types `keys` at its question. */
async function onTerminal(
  args: string,
  keys: string,
): Promise<{ code: number | null; shown: string }> {
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const child = spawn(
    '/usr/bin/script',
    ['-qefc', `${process.execPath} ${program} ${args}`, '/dev/null'],
    {
      cwd: folder,
      env: { PATH: process.env['PATH'], HOME: path.join(folder, '.home'), TERM: 'xterm' },
    },
  );
  let shown = '';
  let typed = false;
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    shown += text;
    if (typed || !shown.includes('[y/N]')) return;
    typed = true;
    child.stdin.write(keys);
  });
  await once(child, 'exit');
  child.stdin.destroy();
  return { code: child.exitCode, shown };
}

async function trusted(): Promise<readonly string[]> {
  const { stdout } = await runCli(['keys', 'list', '--json'], { cwd: folder });
  const { keys } = JSON.parse(stdout) as { keys: { key_id: string; trusted: boolean }[] };
  return keys.filter((key) => key.trusted).map((key) => key.key_id);
}

describe('a key command on a real terminal', () => {
  it.each([
    { name: 'no', keys: 'n\r' },
    { name: 'nothing', keys: '\r' },
    { name: 'the end of input', keys: '\u{4}' },
    { name: 'an interrupt', keys: '\u{3}' },
    // Requirement: keys-need-confirmation
  ])('changes nothing after $name', async ({ keys }) => {
    const { code, shown } = await onTerminal('keys trust alice.pem --owner alice', keys);
    expect(shown).toContain(`key ${keyId} of alice, trusted in: everywhere`);
    expect(shown).toContain('Trust it? [y/N]');
    expect(shown).toContain('[cancelled]');
    expect(code).toBe(130);
    expect(await trusted()).not.toContain(keyId);
  });

  // Requirement: trust-reports-failure
  it('trusts and revokes a key only after yes', async () => {
    // its own key: one that is revoked cannot be trusted when the test is tried again
    const own = generateKeyPair();
    const { keyId: bob } = readPrivateKey(own.privatePem, 'another colleague');
    writeFileSync(path.join(folder, 'bob.pem'), own.publicPem);
    const trusting = await onTerminal('keys trust bob.pem --owner bob', 'y\r');
    expect(trusting).toMatchObject({ code: 0 });
    expect(trusting.shown).toContain(`trusted ${bob} (bob)`);
    const kept = await onTerminal(`keys revoke ${bob}`, 'n\r');
    expect(kept).toMatchObject({ code: 130 });
    expect(await trusted()).toContain(bob);
    const revoked = await onTerminal(`keys revoke ${bob}`, 'yes\r');
    expect(revoked).toMatchObject({ code: 0 });
    expect(await trusted()).not.toContain(bob);
  });

  it('rotates only after yes', async () => {
    const before = await trusted();
    expect(await onTerminal('keys rotate', 'n\r')).toMatchObject({ code: 130 });
    expect(await trusted()).toEqual(before);
    const rotated = await onTerminal('keys rotate', 'y\r');
    expect(rotated.shown).toMatch(/signing key [0-9a-f]{16} replaces [0-9a-f]{16}/);
    expect(await trusted()).toHaveLength(before.length + 1);
  });

  it('does not ask with --yes', async () => {
    const { code, shown } = await onTerminal('keys rotate --yes', '');
    expect(code).toBe(0);
    expect(shown).not.toContain('[y/N]');
  });
});

describe('without a terminal', () => {
  it('does not ask', async () => {
    const { code, stderr } = await runCli(['keys', 'rotate'], { cwd: folder });
    expect(code).toBe(0);
    expect(stderr).not.toContain('[y/N]');
  });

  it('does not ask if the question could not be seen', async () => {
    const io = createFakeIo({ answer: 'n' });
    await confirm({ io, options: { yes: false } }, [oneLine('a')], oneLine('Do it?'));
    expect(io.err()).toBe('');
  });
});

it('rye lock accept shows what a change takes out of force before it asks', async () => {
  const file = path.join(folder, '.ai/config/agent/agent.yaml');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, 'skills: { max_active: 3 }\n');
  await runCli(['sign', 'config', 'agent/agent'], { cwd: folder });
  rmSync(file);
  const { shown, code } = await onTerminal('lock accept', 'n\r');
  expect(shown).toContain('-skills: { max_active: 3 }');
  expect(code).toBe(130);
});
