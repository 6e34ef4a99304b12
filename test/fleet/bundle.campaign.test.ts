import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Bundle, collectBundle } from '../../src/features/fleet/bundle/collect-fs.ts';
import { preAuthEncoding, sealEnvelope } from '../../src/features/fleet/bundle/envelope.ts';
import { materialize } from '../../src/features/fleet/bundle/materialize-fs.ts';
import { openBundle } from '../../src/features/fleet/bundle/open.ts';
import { readTar, writeTar } from '../../src/features/fleet/bundle/tar.ts';
import { FEATURES } from '../../src/features/shipped.ts';
import { commitOf } from '../../src/kernel/app/bundle-commit.ts';
import { Threads } from '../../src/kernel/app/threads.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { bundle as bundleProgram } from '../helpers/bundle.ts';
import { type Workspace as Machine, workspace } from '../helpers/workspace.ts';
import { trust } from './machines.ts';

const WORK = `\`\`\`xml
<directive name="work" version="1.0.0">
  <metadata>
    <description>Works.</description><category></category><author>a</author>
    <model provider="literal" />
    <limits turns="3" spend="0.01" />
    <permissions><execute><tool>count</tool><tool>mine</tool></execute></permissions>
  </metadata>
  <process>
    <step name="a"><execute item_type="tool" item_id="count" /></step>
    <step name="b"><execute item_type="tool" item_id="mine" /></step>
  </process>
</directive>
\`\`\`
`;

const HELPER = 'def many():\n    return 7\n';
const COUNT = `__version__ = "1.0.0"
__tool_description__ = "Counts."
__traits__ = {"reads_only": True, "network": False, "timeout_seconds": 60, "risk": "safe"}
__files__ = {"helper.py": "${createHash('sha256').update(HELPER).digest('hex')}"}
from helper import many

def execute(params, project_path):
    return many()
`;

function shell(text: string): string {
  return `# rye:tool
# version: 1.0.0
# description: ${text}
# traits: {reads_only: true, network: false, timeout_seconds: 60, risk: safe}
# /rye:tool
echo ${text}
`;
}

function entry(name: string, text: string, category: string): string {
  return `---\nname: ${name}\ntitle: ${name}\nentry_type: learning\ncategory: ${category}\nversion: "1.0.0"\n---\n${text}\n`;
}

function facts(how: string): string {
  return entry('facts', `Water is ${how}.`, 'team');
}

function write(root: string, name: string, text: string): string {
  const file = path.join(root, '.ai', name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
  return file;
}

async function must(machine: Machine, ...words: readonly string[]): Promise<void> {
  expect([words, await machine.rye(words)]).toEqual([words, expect.objectContaining({ code: 0 })]);
}

/** A machine with items of every kind, signed, and some that no bundle may have. */
async function submitter(): Promise<Machine> {
  const here = await workspace();
  const { project, home } = here;
  rmSync(path.join(project, '.ai/directives/example.md'));
  write(project, 'directives/work.md', WORK);
  write(project, 'tools/count.py', COUNT);
  write(project, 'tools/helper.py', HELPER);
  write(project, 'tools/unpinned.py', 'SECRET = 1\n');
  write(project, 'tools/beside.sh', shell('beside'));
  write(project, 'knowledge/team/facts.md', facts('wet'));
  write(project, 'knowledge/agent/threads/work/t-1.md', '# Export\n\nprivate words\n');
  write(project, 'rules/calm.md', '---\ndescription: Be calm.\n---\nBe calm.\n');
  write(
    project,
    'skills/tables/SKILL.md',
    '---\nname: tables\ndescription: Draw tables.\n---\nDraw.\n',
  );
  write(project, 'skills/tables/data/a.txt', 'a');
  write(project, 'config/agent/resilience.yaml', 'limits:\n  turns: 9\n');
  write(project, 'config/store.yaml', 'url: ""\n');
  write(home, 'tools/mine.sh', shell('mine'));
  write(home, 'tools/other.sh', shell('other'));
  for (const [type, id] of [
    ['directive', 'work'],
    ['tool', 'count'],
    ['tool', 'mine'],
    ['tool', 'other'],
    ['knowledge', 'team/facts'],
    ['rule', 'calm'],
    ['skill', 'tables'],
    ['config', 'agent/resilience'],
    ['config', 'store'],
  ] as const)
    await must(here, 'sign', type, id);
  write(project, 'config/trust.yaml', 'signing: detached\n');
  await must(here, 'sign', 'config', 'trust');
  await must(here, 'sign', 'tool', 'beside');
  // after it was signed
  write(project, 'skills/tables/data/unlisted.txt', 'not in the list');
  write(project, 'directives/unsigned.md', WORK.replace('name="work"', 'name="unsigned"'));
  symlinkSync('work.md', path.join(project, '.ai/directives/linked.md'));
  write(project, 'state/threads/t-1/thread.json', '{}');
  return here;
}

function opened(machine: Machine, projectPath = machine.project): Workspace {
  const env = { PATH: process.env['PATH'] };
  const base = new Workspace({ features: FEATURES, projectPath, userSpacePath: machine.home, env });
  onTestFinished(() => base.close());
  return base;
}

async function collect(machine: Machine, directiveId = 'work'): Promise<Bundle> {
  const base = opened(machine);
  const plan = await new Threads(base).plan({ directiveId });
  return await collectBundle({
    ...base.verification,
    plan,
    key: base.keyring.signer(),
    ryeVersion: '1.0.0',
    commitOf: async (paths) => await commitOf(base.options, paths),
  });
}

/** Opens a bundle with the keys of a machine, with some parts replaced. */
function open(machine: Machine, bundle: Bundle, other: Partial<Bundle> = {}) {
  const { tar, envelope, planSha256 } = { ...bundle, ...other };
  return openBundle({ tar, envelope, planSha256, keys: opened(machine).keyring });
}

function codeOf(act: () => unknown): string {
  try {
    act();
    return 'none';
  } catch (error) {
    return (error as { code: string }).code;
  }
}

describe('a bundle', () => {
  it('has the signed items of the project and the items of the user that the plan names, and runs elsewhere', async () => {
    const here = await submitter();
    const there = await workspace();
    await trust(there, here);
    const bundle = await collect(here);
    const signature = bundle.paths.find((name) => name.startsWith('signatures/')) ?? '';
    expect(signature).toMatch(/^signatures\/tools\/beside\.sh\.[0-9a-f]{16}\.sig$/);
    expect(bundle.paths).toEqual([
      'config/agent/resilience.yaml',
      'directives/work.md',
      'knowledge/team/facts.md',
      'rules/calm.md',
      signature,
      'skills/tables/.rye-files.json',
      'skills/tables/SKILL.md',
      'skills/tables/data/a.txt',
      'tools/beside.sh',
      'tools/count.py',
      'tools/helper.py',
      'tools/mine.sh',
    ]);
    const skipped = bundle.skipped.map((one) => `${path.basename(one.path)} ${one.code}`);
    expect(skipped.toSorted()).toEqual([
      'linked.md path_denied',
      'unpinned.py unsigned',
      'unsigned.md unsigned',
    ]);
    expect(await collect(here)).toEqual(bundle);

    const { files, keyId, stated } = open(there, bundle);
    expect(stated).toMatchObject({ signers: [keyId], git_commit: null, rye_version: '1.0.0' });
    const folder = path.join(there.home, 'leg');
    materialize(files, folder);
    const run = await there.rye(['-C', folder, 'run', 'work', '--json']);
    expect(JSON.parse(run.stdout)).toMatchObject({ success: true });
    for (const { path: name, bytes } of files)
      expect(readFileSync(path.join(folder, '.ai', name)).equals(bytes)).toBe(true);
  });

  it('has the lock of the project if that pins nothing else', async () => {
    const here = await submitter();
    const there = await workspace();
    await trust(there, here);
    expect(existsSync(path.join(here.project, '.ai/lock.json'))).toBe(true);
    expect((await collect(here)).paths).not.toContain('lock.json');
    for (const name of ['store', 'trust'])
      rmSync(path.join(here.project, `.ai/config/${name}.yaml`));
    await must(here, 'lock', 'accept');
    const bundle = await collect(here);
    expect(bundle.paths).toContain('lock.json');
    const folder = path.join(there.home, 'leg');
    materialize(open(there, bundle).files, folder);
    const run = await there.rye(['-C', folder, 'run', 'work', '--json']);
    expect(JSON.parse(run.stdout)).toMatchObject({ success: true });
  });

  it('is verified by openssl', async () => {
    const here = await submitter();
    const { envelope, digest } = await collect(here);
    const { payload, payloadType, signatures } = JSON.parse(envelope) as {
      payload: string;
      payloadType: string;
      signatures: readonly { sig: string }[];
    };
    expect(preAuthEncoding('http://example.com/HelloWorld', 'hello world')).toBe(
      'DSSEv1 29 http://example.com/HelloWorld 11 hello world',
    );
    const statement = Buffer.from(payload, 'base64').toString('utf8');
    expect(JSON.parse(statement)).toMatchObject({
      _type: 'https://in-toto.io/Statement/v1',
      subject: [{ name: 'bundle.tar', digest: { sha256: digest } }],
      predicateType: 'https://rye.dev/bundle/v1',
    });
    const cwd = here.home;
    const header = `DSSEv1 ${Buffer.byteLength(payloadType)} ${payloadType} ${Buffer.byteLength(statement)} `;
    writeFileSync(path.join(cwd, 'pae'), `${header}${statement}`);
    writeFileSync(path.join(cwd, 'sig'), Buffer.from(signatures[0]?.sig ?? '', 'base64'));
    writeFileSync(path.join(cwd, 'key.pem'), (await here.rye(['keys', 'export'])).stdout);
    const verify = ['pkeyutl', '-verify', '-pubin', '-inkey', 'key.pem', '-rawin', '-in', 'pae'];
    const out = execFileSync('openssl', [...verify, '-sigfile', 'sig'], { cwd, encoding: 'utf8' });
    expect(out).toContain('Verified Successfully');
  });

  it('names the commit that has all of its files, and none if one differs', async () => {
    const here = await submitter();
    rmSync(path.join(here.home, '.ai/tools/mine.sh'));
    write(here.project, 'tools/mine.sh', shell('mine'));
    await must(here, 'sign', 'tool', 'mine');
    const git = (...args: readonly string[]): string =>
      execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', ...args], {
        cwd: here.project,
        encoding: 'utf8',
      });
    const commit = async (): Promise<string | null> =>
      open(here, await collect(here)).stated.git_commit;
    git('init', '-q');
    expect(await commit()).toBeNull();
    git('add', '-A');
    git('commit', '-qm', 'all');
    expect(await commit()).toBe(git('rev-parse', 'HEAD').trim());
    write(here.project, 'rules/loud.md', '---\ndescription: Be loud.\n---\nBe loud.\n');
    await must(here, 'sign', 'rule', 'loud');
    expect(await commit()).toBeNull();
  });

  it('is refused with the code of its defect', async () => {
    const here = await submitter();
    const there = await workspace();
    const stranger = await workspace();
    await trust(there, here);
    const bundle = await collect(here);
    expect(open(there, bundle).files).toHaveLength(12);

    const files = readTar(bundle.tar);
    const less = writeTar(files.slice(1));
    const changed = Buffer.from(bundle.tar);
    changed[600] = (changed[600] ?? 0) ^ 1;
    const parsed = JSON.parse(bundle.envelope) as Record<string, unknown>;
    const statement = Buffer.from(String(parsed['payload']), 'base64').toString('utf8');
    const own = opened(here).keyring.signer();
    const reseal = (text: string): string => sealEnvelope(text, own);
    const lessDigest = createHash('sha256').update(less).digest('hex');
    const other = await (async () => {
      write(here.project, 'knowledge/team/facts.md', facts('dry'));
      await must(here, 'sign', 'knowledge', 'team/facts');
      return await collect(here);
    })();
    const cases: readonly (readonly [string, Partial<Bundle>])[] = [
      ['a changed byte', { tar: changed }],
      ['another tar', { tar: other.tar }],
      ['another statement', { envelope: other.envelope }],
      ['another plan', { planSha256: '0'.repeat(64) }],
      [
        'a statement of another plan',
        { envelope: reseal(statement.replace(bundle.planSha256, '1'.repeat(64))) },
      ],
      [
        'a tar without a file that is stated',
        { tar: less, envelope: reseal(statement.replace(bundle.digest, lessDigest)) },
      ],
      [
        'another type of statement',
        { envelope: reseal(statement.replace('/bundle/v1', '/bundle/v2')) },
      ],
      [
        'another type of payload',
        { envelope: JSON.stringify({ ...parsed, payloadType: 'text/plain' }) },
      ],
      [
        'a changed statement',
        {
          envelope: JSON.stringify({
            ...parsed,
            payload: Buffer.from(`${statement} `).toString('base64'),
          }),
        },
      ],
      ['no signature', { envelope: JSON.stringify({ ...parsed, signatures: [] }) }],
      ['no envelope', { envelope: '{' }],
    ];
    for (const [what, part] of cases)
      expect([what, codeOf(() => open(there, bundle, part))]).toEqual([what, 'thread_tampered']);
    expect(codeOf(() => open(stranger, bundle))).toBe('key_untrusted');

    const file = path.join(stranger.home, 'limited.pem');
    writeFileSync(file, (await here.rye(['keys', 'export'])).stdout);
    const limits = [
      ['--for', 'approve'],
      ['--for', 'sign', '--only', 'reports/*'],
      ['--for', 'sign', '--types', 'directive'],
    ];
    for (const limit of limits) {
      await must(stranger, 'keys', 'trust', file, '--owner', 'a', ...limit, '-y');
      expect([limit, codeOf(() => open(stranger, bundle))]).toEqual([limit, 'key_out_of_scope']);
    }
    await must(there, 'keys', 'revoke', own.keyId, '-y');
    expect(codeOf(() => open(there, bundle))).toBe('key_revoked');
  });

  it('is not made with an unsigned file of the plan, for a changed plan, or of too many bytes', async () => {
    const here = await submitter();
    const base = opened(here);
    const plan = await new Threads(base).plan({ directiveId: 'work' });
    const made = async () =>
      await collectBundle({
        ...base.verification,
        plan,
        key: base.keyring.signer(),
        ryeVersion: '1.0.0',
        commitOf: async () => undefined,
      });
    const noise = Buffer.alloc(3 * 1024 * 1024, 'x').toString();
    for (const name of ['a', 'b', 'c'])
      write(here.project, `knowledge/big/${name}.md`, entry(name, noise, 'big'));
    await must(here, 'sign', 'knowledge', 'big/*');
    await expect(made()).rejects.toMatchObject({
      code: 'item_too_large',
      message: expect.stringContaining('knowledge/big/a.md'),
      hint: expect.stringContaining('.ai'),
    });
    rmSync(path.join(here.project, '.ai/knowledge/big'), { recursive: true });
    expect((await made()).paths).toHaveLength(12);

    write(here.home, 'tools/mine.sh', shell('mine'));
    await expect(made()).rejects.toMatchObject({ code: 'unsigned' });
    await must(here, 'sign', 'tool', 'mine');
    expect((await made()).paths).toContain('tools/mine.sh');
    write(here.project, 'directives/work.md', WORK.replace('Works.', 'Works well.'));
    await must(here, 'sign', 'directive', 'work');
    await expect(made()).rejects.toMatchObject({ code: 'file_changed' });
  });
});

describe('the files of a bundle', () => {
  const FILES = [
    { path: 'directives/a.md', bytes: Buffer.from('one'), isExecutable: false },
    { path: 'tools/deep/b.sh', bytes: Buffer.from('two'), isExecutable: true },
  ];

  async function place(): Promise<{
    readonly folder: string;
    readonly at: (name: string) => string;
  }> {
    const { home } = await workspace({ init: false });
    const folder = path.join(home, 'leg');
    return { folder, at: (name) => path.join(folder, '.ai', name) };
  }

  it('are written once, and a damaged one is written again', async () => {
    const { folder, at } = await place();
    materialize(FILES, folder);
    materialize(FILES, folder);
    expect(readFileSync(at('tools/deep/b.sh'), 'utf8')).toBe('two');
    // as after a power failure
    writeFileSync(at('directives/a.md'), '');
    rmSync(at('tools'), { recursive: true });
    // what its thread wrote stays
    mkdirSync(at('state/threads/t'), { recursive: true });
    mkdirSync(at('knowledge/agent/threads'), { recursive: true });
    writeFileSync(at('knowledge/agent/threads/t.md'), 'export');
    // what killed processes left
    writeFileSync(at('directives/.rye-0011223344556677.tmp'), 'on');
    mkdirSync(path.join(folder, '.ai-0011223344556677.tmp/directives'), { recursive: true });
    materialize(FILES, folder);
    expect(readFileSync(at('directives/a.md'), 'utf8')).toBe('one');
    expect(readFileSync(at('tools/deep/b.sh'), 'utf8')).toBe('two');
    expect(existsSync(at('knowledge/agent/threads/t.md'))).toBe(true);
  });

  it('are not written through a link, nor beside items that are not theirs', async () => {
    const { folder, at } = await place();
    const outside = mkdtempSync(path.join(path.dirname(folder), 'outside-'));
    mkdirSync(folder);
    symlinkSync(outside, path.join(folder, '.ai'));
    expect(codeOf(() => materialize(FILES, folder))).toBe('path_denied');
    rmSync(path.join(folder, '.ai'));
    materialize(FILES, folder);
    rmSync(at('tools'), { recursive: true });
    symlinkSync(outside, at('tools'));
    expect(codeOf(() => materialize(FILES, folder))).not.toBe('none');
    expect(readdirSync(outside)).toEqual([]);
    rmSync(at('tools'));
    writeFileSync(at('directives/extra.md'), 'extra');
    expect(codeOf(() => materialize(FILES, folder))).toBe('already_exists');
    rmSync(at('directives/extra.md'));
    rmSync(at('directives/a.md'));
    symlinkSync(path.join(outside, 'x'), at('directives/a.md'));
    expect(codeOf(() => materialize(FILES, folder))).toBe('path_denied');
    expect(readdirSync(outside)).toEqual([]);
  });

  it('are whole after several processes wrote them, and after one was killed', async () => {
    const { folder, at } = await place();
    const program = await bundleProgram(path.resolve(import.meta.dirname, 'materialize-child.ts'));
    const many = Array.from({ length: 300 }, (_, index) => ({
      path: `knowledge/n${index}.md`,
      bytes: Buffer.from(`text ${index}`),
      isExecutable: false,
    }));
    const tar = path.join(path.dirname(folder), 'b.tar');
    writeFileSync(tar, writeTar(many));
    const start = () =>
      spawn(process.execPath, [program, tar, folder], { stdio: ['ignore', 'pipe', 'inherit'] });
    const killed = start();
    await once(killed.stdout, 'data');
    killed.kill('SIGKILL');
    await once(killed, 'exit');
    const ends = await Promise.all([1, 2, 3].map(async () => await once(start(), 'exit')));
    expect(ends.map(([code]) => code as unknown)).toEqual([0, 0, 0]);
    for (const { path: name, bytes } of many)
      expect(readFileSync(at(name)).equals(bytes)).toBe(true);
  });
});
