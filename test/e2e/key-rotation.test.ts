import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import type { CliResult } from '../helpers/run-cli.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const KEYS = '.ai/config/keys';

/** Two people with a project each. What is below `.ai/config/keys` and `.ai/directives` travels with {@link pull}. */
async function colleagues(...trust: readonly string[]) {
  const ada = await workspace();
  const bob = await workspace();
  const pem = path.join(bob.home, 'ada.pem');
  writeFileSync(pem, (await ada.rye(['keys', 'export'])).stdout);
  await bob.rye(['keys', 'trust', pem, '--owner', 'ada', '--yes', ...trust]);
  return { ada, bob, pem };
}

/** Copies what a commit would carry. */
function pull(from: Workspace, to: Workspace): void {
  for (const folder of ['config/keys', 'directives']) {
    const source = path.join(from.project, '.ai', folder);
    const target = path.join(to.project, '.ai', folder);
    removeFolder(target);
    if (existsSync(source)) cpSync(source, target, { recursive: true });
  }
}

async function writeSigned(person: Workspace, id: string): Promise<CliResult> {
  const target = path.join(person.project, '.ai/directives', `${id}.md`);
  mkdirSync(path.dirname(target), { recursive: true });
  const category = path.dirname(id) === '.' ? '' : path.dirname(id);
  writeFileSync(
    target,
    `# X

\`\`\`xml
<directive name="${path.basename(id)}" version="1.0.0">
  <metadata>
    <description>Says hello.</description>
    <category>${category}</category>
    <author>ada</author>
    <model provider="literal"/>
    <permissions><execute><tool>rye/core/greet</tool></execute></permissions>
  </metadata>
  <process>
    <step name="greet">
      <execute item_type="tool" item_id="rye/core/greet"><param name="who">you</param></execute>
    </step>
  </process>
</directive>
\`\`\`
`,
  );
  return await person.rye(['sign', 'directive', id]);
}

async function rotated(person: Workspace) {
  return (await person.json(['keys', 'rotate', '--yes'])) as {
    old_key_id: string;
    key_id: string;
    statement: string;
  };
}

async function keyOf(person: Workspace, keyId: string) {
  const { keys } = (await person.json(['keys', 'list'])) as { keys: { key_id: string }[] };
  return keys.find(({ key_id }) => key_id === keyId);
}

test('after a pull, a rotated key is trusted with the scope of the old one', async () => {
  const { ada, bob } = await colleagues('--only', 'reports/*');
  const rotation = await rotated(ada);
  expect(rotation.statement).toBe(
    path.join(ada.project, KEYS, 'rotated', `${rotation.old_key_id}.toml`),
  );
  expect(readFileSync(rotation.statement, 'utf8')).toContain(rotation.key_id);
  expect((await writeSigned(ada, 'reports/weekly')).code).toBe(0);
  await writeSigned(ada, 'deploy');
  pull(ada, bob);
  expect((await bob.rye(['run', 'reports/weekly'])).code).toBe(0);
  expect((await bob.rye(['run', 'deploy'])).stderr).toContain('[key_out_of_scope]');
  expect(await keyOf(bob, rotation.key_id)).toMatchObject({
    trusted: true,
    owner: 'ada',
    only: ['reports/*'],
    purposes: ['sign'],
    rotated_from: rotation.old_key_id,
  });
});

test('trust follows several rotations, and the run keeps the statements', async () => {
  const { ada, bob } = await colleagues();
  await rotated(ada);
  await rotated(ada);
  const { key_id: last } = await rotated(ada);
  await writeSigned(ada, 'deploy');
  pull(ada, bob);
  expect((await bob.rye(['run', 'deploy'])).code).toBe(0);
  // the statements count in other projects and after they are gone from this one
  removeFolder(path.join(bob.project, KEYS));
  expect(await keyOf(bob, last)).toMatchObject({ trusted: true, source: 'user' });
});

test('a rotation and the revocation of the old key reach a colleague together', async () => {
  const { ada, bob } = await colleagues();
  await writeSigned(ada, 'before');
  const { old_key_id: old, key_id: next } = await rotated(ada);
  await writeSigned(ada, 'after');
  expect((await ada.rye(['keys', 'revoke', old, '--yes'])).code).toBe(0);
  expect(existsSync(path.join(ada.project, KEYS, 'revoked', `${old}.toml`))).toBe(true);
  pull(ada, bob);
  expect((await bob.rye(['run', 'after'])).code).toBe(0);
  const before = await bob.rye(['run', 'before']);
  expect(before).toMatchObject({ code: 3 });
  expect(before.stderr).toMatch(/revoked \S+Z, signed \S+Z\) \[key_revoked\]/);
  expect(await keyOf(bob, old)).toMatchObject({ revoked: true, trusted: false, purposes: [] });
  expect(await keyOf(bob, next)).toMatchObject({ trusted: true });
  // someone takes the revocation out of the project again
  removeFolder(path.join(bob.project, KEYS));
  expect((await bob.rye(['run', 'before'])).stderr).toContain('[key_revoked]');
  expect((await bob.rye(['run', 'after'])).code).toBe(0);
  const { key_id: again } = await rotated(ada);
  await writeSigned(ada, 'again');
  pull(ada, bob);
  expect((await bob.rye(['run', 'again'])).code).toBe(0);
  expect(again).not.toBe(next);
});

test('a record of before the revocation stays valid; one of after the date does not', async () => {
  const { ada } = await colleagues();
  const run = await ada.json(['run', 'hello', '--thread-id', 'old']);
  expect(run['success']).toBe(true);
  const { old_key_id: old } = await rotated(ada);
  const future = new Date(Date.now() + 86_400_000).toISOString();
  expect((await ada.rye(['keys', 'revoke', old, '--since', future, '--yes'])).code).toBe(2);
  // the second of the revocation has to be later than the second of the record
  const record = Math.floor(Date.now() / 1000);
  await expect.poll(() => Math.floor(Date.now() / 1000)).toBeGreaterThan(record);
  expect((await ada.rye(['keys', 'revoke', old, '--yes'])).code).toBe(0);
  const verified = await ada.rye(['verify', 'thread', 'old']);
  expect(verified.code).toBe(0);
  expect(verified.stdout).toMatch(/signed by .* before the key was revoked on/);
  expect((await ada.rye(['threads', 'show', 'old'])).code).toBe(0);
  expect((await ada.rye(['keys', 'revoke', old, '--since', '2020-01-01', '--yes'])).code).toBe(0);
  const compromised = await ada.rye(['verify', 'thread', 'old']);
  expect(compromised.code).toBe(3);
  expect(compromised.stdout).toContain('[key_revoked]');
});

test('statements that the old key did not make move nothing', async () => {
  const { ada, bob } = await colleagues();
  const mallory = await workspace();
  const { old_key_id: hers, statement } = await rotated(mallory);
  const adas = String((await ada.json(['keys', 'export']))['key_id']);
  await writeSigned(mallory, 'evil');
  // hers under the name of Ada's key, as it is and with the name changed
  const target = path.join(mallory.project, KEYS, 'rotated', `${adas}.toml`);
  const text = readFileSync(statement, 'utf8');
  for (const forged of [text, text.replaceAll(hers, adas), text.replace('inherited', 'all')]) {
    writeFileSync(target, forged);
    pull(mallory, bob);
    expect((await bob.rye(['run', 'evil'])).stderr).toContain('[key_untrusted]');
  }
  // a revocation of Ada's key by a stranger
  await mallory.rye(['keys', 'revoke', hers, '--yes']);
  const revoked = path.join(mallory.project, KEYS, 'revoked');
  const revocation = readFileSync(path.join(revoked, `${hers}.toml`), 'utf8');
  writeFileSync(path.join(revoked, `${adas}.toml`), revocation.replaceAll(hers, adas));
  pull(mallory, bob);
  expect(await keyOf(bob, adas)).toMatchObject({ trusted: true, revoked: false });
  const file = path.join(bob.project, KEYS, 'revoked', `${adas}.toml`);
  const imported = await bob.rye(['keys', 'revoke', file, '--yes']);
  expect(imported.stderr).toContain('[signature_invalid]');
});

test('untrust holds against a replayed statement, of the old key and of the new one', async () => {
  const { ada, bob, pem } = await colleagues();
  const { old_key_id: old, key_id: next } = await rotated(ada);
  await writeSigned(ada, 'deploy');
  pull(ada, bob);
  await bob.rye(['keys', 'untrust', next, '--yes']);
  expect((await bob.rye(['run', 'deploy'])).stderr).toContain('you stopped trusting it');
  await bob.rye(['keys', 'untrust', old, '--yes']);
  expect((await bob.rye(['run', 'deploy'])).stderr).toContain('[key_untrusted]');
  await bob.rye(['keys', 'trust', pem, '--yes']);
  expect((await bob.rye(['run', 'deploy'])).stderr).toContain('[key_untrusted]');
  const again = path.join(bob.home, 'next.pem');
  writeFileSync(again, (await ada.rye(['keys', 'export'])).stdout);
  await bob.rye(['keys', 'trust', again, '--yes']);
  expect((await bob.rye(['run', 'deploy'])).code).toBe(0);
});

test('a published revocation can be imported from its file, and keys publish writes statements', async () => {
  const { ada, bob } = await colleagues();
  const { old_key_id: old } = await rotated(ada);
  await ada.rye(['keys', 'revoke', old, '--yes']);
  const file = path.join(ada.project, KEYS, 'revoked', `${old}.toml`);
  // without the rotation it is unknown that its signer is the successor
  const alone = await bob.rye(['keys', 'revoke', file, '--yes']);
  expect(alone.stderr).toContain('[signature_invalid]');
  pull(ada, bob);
  removeFolder(path.join(bob.project, KEYS, 'revoked'));
  expect((await bob.rye(['keys', 'revoke', file, '--yes'])).stdout).toContain(`revoked ${old}`);
  expect(await keyOf(bob, old)).toMatchObject({ revoked: true });
  removeFolder(path.join(ada.project, KEYS));
  const { files } = (await ada.json(['keys', 'publish'])) as { files: string[] };
  expect(files).toHaveLength(2);
  expect(await ada.json(['keys', 'publish'])).toMatchObject({ files: [] });
});
