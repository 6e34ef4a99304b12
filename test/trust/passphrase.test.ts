import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

// Requirement: signing-key-protected
it('a protected key signs only with its passphrase, through a rotation too', async () => {
  const here = await workspace();
  const file = path.join(here.home, '.ai/config/keys/signing/private_key.pem');
  const secret = path.join(here.home, 'passphrase');
  writeFileSync(secret, 'correct horse battery\n');
  const env = { RYE_KEY_PASSPHRASE: secret };
  const { stdout: before } = await here.rye(['keys', 'export']);
  const plain = readFileSync(file, 'utf8');

  expect(await here.rye(['keys', 'protect'], { env })).toMatchObject({ code: 0 });
  const sealed = readFileSync(file, 'utf8');
  expect(sealed).toContain('BEGIN ENCRYPTED PRIVATE KEY');
  expect(sealed).not.toContain(plain.split('\n')[1]);
  // any PKCS #8 tool opens it
  const opened = execFileSync('openssl', ['pkey', '-in', file, '-passin', `file:${secret}`]);
  expect(opened.toString()).toBe(plain);

  // what needs no signature asks for nothing
  expect((await here.rye(['keys', 'export'])).stdout).toBe(before);
  const sign = ['sign', 'directive', 'example', '--json'];
  for (const wrong of [
    {},
    { RYE_KEY_PASSPHRASE: '/nowhere' },
    { RYE_KEY_PASSPHRASE: 'fd:99' },
    { RYE_KEY_PASSPHRASE: path.join(here.home, 'wrong') },
  ]) {
    writeFileSync(path.join(here.home, 'wrong'), 'incorrect horse');
    const refused = await here.rye(['run', 'hello', '--json'], { env: wrong });
    expect(refused.code).toBe(3);
    expect(refused.stdout).toContain('"key_unsafe"');
    expect(refused.stdout).not.toMatch(/horse/);
  }
  expect(await here.rye(sign, { env })).toMatchObject({ code: 0 });
  expect(await here.rye(['run', 'hello'], { env })).toMatchObject({ code: 0 });

  expect(await here.rye(['keys', 'rotate', '-y'], { env })).toMatchObject({ code: 0 });
  expect(readFileSync(file, 'utf8')).toContain('BEGIN ENCRYPTED PRIVATE KEY');
  expect(readFileSync(file, 'utf8')).not.toBe(sealed);
  expect(await here.rye(['keys', 'protect', '--off'], { env })).toMatchObject({ code: 0 });
  expect(readFileSync(file, 'utf8')).toContain('BEGIN PRIVATE KEY');
  expect(await here.rye(['run', 'hello'])).toMatchObject({ code: 0 });
  writeFileSync(secret, 'short');
  expect((await here.rye(['keys', 'protect', '--json'], { env })).stdout).toContain(
    'invalid_input',
  );
  expect(existsSync(file)).toBe(true);
});
