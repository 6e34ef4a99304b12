import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

/** A second person with a key, and a signed file of theirs in the first person's project. */
async function team() {
  const bob = await workspace();
  const alice = await workspace();
  const { stdout: pem } = await alice.rye(['keys', 'export']);
  const pemFile = path.join(alice.home, 'alice.pem');
  writeFileSync(pemFile, pem);
  const keyId = String((await alice.json(['keys', 'export']))['key_id']);
  const asAlice = (args: readonly string[]) => bob.rye(args, { env: { HOME: alice.home } });
  return { bob, alice, asAlice, pemFile, keyId };
}

function write({ project }: Workspace, file: string, text: string): void {
  const target = path.join(project, '.ai', file);
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, text);
}

const directive = (id: string): string => {
  const name = path.basename(id);
  const category = path.dirname(id) === '.' ? '' : path.dirname(id);
  return `# ${name}

\`\`\`xml
<directive name="${name}" version="1.0.0">
  <metadata>
    <description>Says hello.</description>
    <category>${category}</category>
    <author>alice</author>
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
`;
};

test('a key that is limited to ids signs only those, and the refusal names the limit', async () => {
  const { bob, asAlice, pemFile, keyId } = await team();
  for (const id of ['reports/weekly', 'reports/deep/audit', 'deploy']) {
    write(bob, `directives/${id}.md`, directive(id));
    expect((await asAlice(['sign', 'directive', id])).stdout).toContain('signed');
  }
  const trust = ['keys', 'trust', pemFile, '--owner', 'alice', '--only', 'reports/*', '--yes'];
  const trusted = await bob.rye(trust);
  expect(trusted.stdout).toContain(`trusted ${keyId} (alice) for sign; only reports/*`);
  expect((await bob.rye(['verify', 'directive', 'reports/weekly'])).code).toBe(0);
  for (const id of ['deploy', 'reports/deep/audit']) {
    const refused = await bob.rye(['run', id]);
    expect(refused.code).toBe(3);
    expect(refused.stderr).toContain('[key_out_of_scope]');
    expect(refused.stderr).toContain('only reports/*');
  }
  const { keys } = (await bob.json(['keys', 'list'])) as { keys: { key_id: string }[] };
  expect(keys.find(({ key_id }) => key_id === keyId)).toMatchObject({
    purposes: ['sign'],
    only: ['reports/*'],
    trusted: true,
  });
  expect((await bob.rye(['keys', 'list'])).stdout).toContain('sign; only reports/*');
});

test('hooks that a limited key signed are ignored with a warning', async () => {
  const { bob, asAlice, pemFile } = await team();
  write(bob, 'config/agent/hooks.yaml', 'hooks: []\n');
  expect((await asAlice(['sign', 'config', 'agent/hooks'])).code).toBe(0);
  await bob.rye(['keys', 'trust', pemFile, '--types', 'directive,tool', '--yes']);
  const run = await bob.rye(['run', 'hello', '--quiet']);
  expect(run.stderr).toMatch(
    /ignored: .*config agent\/hooks is signed by key .*\(sign; directive,tool\) \[key_out_of_scope\]/,
  );
});

test('a key for approvals alone signs nothing', async () => {
  const { bob, asAlice, pemFile, keyId } = await team();
  write(bob, 'directives/deploy.md', directive('deploy'));
  await asAlice(['sign', 'directive', 'deploy']);
  await bob.rye(['keys', 'trust', pemFile, '--for', 'approve', '--yes']);
  expect((await bob.rye(['run', 'deploy'])).stderr).toContain('[key_out_of_scope]');
  await bob.rye(['keys', 'trust', pemFile, '--for', 'sign,approve', '--yes']);
  expect((await bob.rye(['verify', 'directive', 'deploy'])).code).toBe(0);
  const { keys } = (await bob.json(['keys', 'list'])) as {
    keys: { key_id: string; purposes: string[] }[];
  };
  expect(keys.map(({ purposes }) => purposes)).toEqual([
    ['sign', 'approve'],
    ['sign', 'approve'],
  ]);
  expect(keys[1]?.key_id).toBe(keyId);
});

test('untrust ends the trust; the own key and an unknown key are refused', async () => {
  const { bob, asAlice, pemFile, keyId } = await team();
  write(bob, 'directives/deploy.md', directive('deploy'));
  await asAlice(['sign', 'directive', 'deploy']);
  await bob.rye(['keys', 'trust', pemFile, '--yes']);
  expect((await bob.rye(['verify', 'directive', 'deploy'])).code).toBe(0);
  expect((await bob.rye(['keys', 'untrust', keyId, '--yes'])).stdout).toContain(keyId);
  expect((await bob.rye(['run', 'deploy'])).stderr).toContain('[key_untrusted]');
  expect((await bob.rye(['keys', 'list'])).stdout).not.toContain(keyId);
  expect((await bob.rye(['keys', 'untrust', keyId, '--yes'])).code).toBe(6);
  const own = String((await bob.json(['keys', 'export']))['key_id']);
  expect((await bob.rye(['keys', 'untrust', own, '--yes'])).code).toBe(2);
});

test.each([
  ['--only', '../x y', 'is not a glob over ids'],
  ['--for', 'sign,aprove', 'unknown purpose "aprove"'],
  ['--for', ',', 'unknown purpose'],
  ['--types', 'directives', 'unknown type "directives"'],
])('trust refuses %s %j', async (option, value, message) => {
  const { bob, pemFile } = await team();
  const refused = await bob.rye(['keys', 'trust', pemFile, option, value, '--yes']);
  expect(refused).toMatchObject({ code: 2 });
  expect(refused.stderr).toContain(message);
});
