import { execFile } from 'node:child_process';
import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import { directive } from '../attacks/lab.ts';
import { cliPackage, runCli } from '../helpers/run-cli.ts';
import { calls, reply, startWireServer, toolUse, type WireScript } from '../helpers/wire-server.ts';
import { workspace } from '../helpers/workspace.ts';

const FREE = directive('free', {
  limits: 'turns="6" spend="0.10"',
  permissions:
    '<execute><tool>rye/bash</tool></execute><sign><knowledge>notes</knowledge></sign><execute><directive>helper</directive></execute><acknowledge risk="elevated">Tests.</acknowledge>',
});
const HELPER = directive('helper');
const NIGHTLY = {
  'reports/nightly': directive('nightly', {
    category: 'reports',
    limits: 'turns="6" spend="0.50"',
  }),
};

const THREADS = '.ai/state/threads';

/** A job without any signing key, and the person whose directives it runs. */
async function job(script: WireScript = () => reply('done')) {
  const person = await workspace();
  for (const [name, text] of Object.entries({ free: FREE, helper: HELPER, ...NIGHTLY })) {
    mkdirSync(path.join(person.project, '.ai/directives/reports'), { recursive: true });
    writeFileSync(path.join(person.project, '.ai/directives', `${name}.md`), text);
    expect((await person.rye(['sign', 'directive', name])).code).toBe(0);
  }
  const server = await startWireServer(script);
  onTestFinished(async () => await server.close());
  const checkout = path.join(person.home, 'checkout');
  cpSync(path.join(person.project, '.ai'), path.join(checkout, '.ai'), { recursive: true });
  rmSync(path.join(checkout, THREADS), { recursive: true, force: true });
  const home = path.join(person.home, 'empty');
  mkdirSync(home);
  const env = {
    HOME: home,
    RYE_TRUSTED_KEYS: (await person.rye(['keys', 'export'])).stdout,
    ANTHROPIC_API_KEY: 'sk-ant-attack-lab-0123456789',
    ANTHROPIC_BASE_URL: server.url,
  };
  const rye = async (args: readonly string[], more: Readonly<Record<string, string>> = {}) =>
    await runCli(args, { cwd: checkout, env: { ...env, ...more } });
  /** Brings the state of the job to the person, as an artifact does. */
  const deliver = () => {
    for (const part of [THREADS, '.ai/knowledge/agent/threads'])
      cpSync(path.join(checkout, part), path.join(person.project, part), { recursive: true });
  };
  return { person, checkout, home, env, rye, deliver, server };
}

// Requirement: ci-model-without-key
test('a run without a key is not signed until a person signs it, and names who did', async () => {
  const { person, checkout, home, rye, deliver } = await job();
  const run = await rye(['run', 'free', '--unsigned-record', '--json', '--thread-id', 'nightly-1']);
  expect(run.code, run.stdout + run.stderr).toBe(0);
  expect(readdirSync(home)).toEqual([]);
  for (const where of ['the job', 'the person'] as const) {
    if (where === 'the person') deliver();
    const look = where === 'the job' ? rye : person.rye;
    const verified = await look(['verify', 'thread', 'nightly-1']);
    expect(verified.code).toBe(3);
    expect(verified.stdout).toBe(
      'FAIL thread.json: the record of nightly-1 is not signed [unsigned]\n',
    );
    expect(verified.stderr).toContain('rye sign thread nightly-1');
    const resumed = await look(['threads', 'resume', 'nightly-1', '-m', 'More.']);
    expect(resumed.code).toBe(3);
    expect(resumed.stderr).toContain('rye sign thread nightly-1');
  }
  const asked = await person.rye(['sign', 'thread', 'nightly-1']);
  expect(asked.code).toBe(2);
  expect(asked.stderr).toContain('[confirmation_required]');
  for (const text of [
    'thread     nightly-1 (completed)',
    'directive  free',
    'cost       $',
    'head ',
  ])
    expect(asked.stdout).toContain(text);
  const signed = await person.rye(['sign', 'thread', 'nightly-1', '--yes']);
  expect(signed.code, signed.stderr).toBe(0);
  expect(signed.stdout).toContain('signed 1 record with ');
  const { key_id: key } = await person.json(['keys', 'export']);
  const verified = await person.rye(['verify', 'thread', 'nightly-1']);
  expect(verified.code, verified.stdout).toBe(0);
  expect(verified.stdout).toContain(`ok   origin (signed after the run by ${String(key)} on 20`);
  expect(await person.json(['verify', 'thread', 'nightly-1'])).toMatchObject({
    signed_after_run: { key_id: key },
  });
  expect(existsSync(path.join(checkout, '.ai/config/keys'))).toBe(
    existsSync(path.join(person.project, '.ai/config/keys')),
  );
});

test('the job has no key to find, and the key of the run signs nothing but its records', async () => {
  const climb =
    'p=$PPID; while [ "$(cat /proc/$p/comm)" != node ]; do p=$(awk \'/^PPid/{print $2}\' /proc/$p/status); done';
  const commands = [
    'env',
    `${climb}; tr '\\0' '\\n' < /proc/$p/environ`,
    'find "$HOME" -type f -exec cat {} +',
    'find . -name "*.pem"',
    "mkdir -p .ai/knowledge; printf -- '---\\nname: notes\\ntitle: Notes\\nentry_type: reference\\ncategory:\\nversion: 1.0.0\\n---\\nText.\\n' > .ai/knowledge/notes.md",
  ];
  const bodies: string[] = [];
  const { person, rye, deliver, checkout } = await job(({ body }) => {
    bodies.push(JSON.stringify(body));
    if (bodies.length === 1)
      return calls(...commands.map((command) => toolUse('rye_bash', { command })));
    if (bodies.length > 2) return reply('done');
    return calls(
      toolUse('rye_sign', { item_type: 'knowledge', item_id: 'notes' }, 'sign'),
      toolUse('rye_execute', { item_type: 'directive', item_id: 'helper' }, 'child'),
    );
  });
  // the sandbox would hide it all
  const off = ['-c', 'resilience.tools.sandbox=off'];
  const run = await rye([
    'run',
    'free',
    '--unsigned-record',
    '--json',
    '--thread-id',
    'n-1',
    ...off,
  ]);
  expect(run.code, run.stdout + run.stderr).toBe(0);
  expect(bodies.join('\n')).not.toContain('PRIVATE KEY');
  expect(bodies.join('\n')).toContain('RYE_THREAD_ID=n-1');
  const log = readFileSync(path.join(checkout, THREADS, 'n-1/transcript.jsonl'), 'utf8');
  expect(log).toMatch(/"tool":"rye\/sign","outcome":"error".*"code":"key_missing"/);
  expect(readFileSync(path.join(checkout, '.ai/knowledge/notes.md'), 'utf8')).not.toContain(
    'signed',
  );
  deliver();
  const signed = await person.rye(['sign', 'thread', 'n-1', '--yes']);
  expect(signed.stdout).toContain('signed 2 records with ');
  expect((await person.rye(['verify', 'thread', 'n-1'])).code).toBe(0);
  expect(
    (await person.rye(['keys', 'list', '--json'])).stdout.match(/"key_id"/g) ?? [],
  ).toHaveLength(1);
});

test('what changed between the run and the signature is refused', async () => {
  const { person, rye, deliver, checkout } = await job();
  await rye(['run', 'free', '--unsigned-record', '--json', '--thread-id', 'n-1']);
  const folder = path.join(checkout, THREADS, 'n-1');
  const kept = (name: string) => readFileSync(path.join(folder, name), 'utf8');
  const changes: readonly (readonly [string, (text: string) => string, RegExp])[] = [
    ['transcript.jsonl', (text) => text.replace('done', 'gone'), /\[transcript_tampered\]/],
    [
      'transcript.jsonl',
      (text) => text.split('\n').slice(0, -2).join('\n'),
      /\[transcript_tampered\]/,
    ],
    ['thread.json', (text) => text.replace('"free"', '"helper"'), /\[thread_tampered\]/],
    ['thread.json', (text) => text.replace(/"spend": [\d.]+/, '"spend": 0'), /\[thread_tampered\]/],
    ['plan.json', (text) => text.replace('Do the work.', 'Do other work.'), /\[thread_tampered\]/],
    ['capabilities.md', (text) => `${text}More.\n`, /\[content_modified\]/],
  ];
  for (const [name, change, code] of changes) {
    const before = kept(name);
    const after = change(before);
    expect(after, name).not.toBe(before);
    writeFileSync(path.join(folder, name), after);
    deliver();
    const signed = await person.rye(['sign', 'thread', 'n-1', '--yes']);
    expect(signed.stderr, name).toMatch(code);
    expect(signed.code).toBe(3);
    writeFileSync(path.join(folder, name), before);
  }
  deliver();
  expect((await person.rye(['sign', 'thread', 'n-1', '--yes'])).code).toBe(0);
});

test('a signed record is not replaced by one that is not, and continues under the key of a person', async () => {
  const { person, rye, deliver, checkout, server } = await job();
  const start = ['run', 'free', '--unsigned-record', '--json', '--thread-id', 'n-1'];
  await rye(start);
  deliver();
  expect((await person.rye(['sign', 'thread', 'n-1', '--yes'])).code).toBe(0);
  const again = await person.rye(['sign', 'thread', 'n-1', '--yes']);
  expect(again.code).toBe(2);
  expect(again.stderr).toContain('is signed already by ');
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const resumed = await person.rye(['threads', 'resume', 'n-1', '-m', 'More.'], { env });
  expect(resumed.code, resumed.stderr).toBe(0);
  const verified = await person.rye(['verify', 'thread', 'n-1']);
  expect(verified.code, verified.stdout).toBe(0);
  expect(verified.stdout).toContain('signed after the run by ');
  const mine = await runCli(['run', 'free', '--json', '--thread-id', 'n-2'], {
    cwd: person.project,
    env: { HOME: person.home, ...env },
  });
  expect(mine.code).toBe(0);
  rmSync(path.join(checkout, THREADS), { recursive: true });
  for (const id of ['n-1', 'n-2']) {
    await rye([...start.slice(0, -1), id]);
    for (const place of ['n-1', 'n-2'])
      if (place === id)
        cpSync(path.join(checkout, THREADS, id), path.join(person.project, THREADS, id), {
          recursive: true,
        });
    expect((await person.rye(['verify', 'thread', id])).stdout).toContain('[unsigned]');
    const signed = await person.rye(['sign', 'thread', id, '--yes']);
    expect(signed.code).toBe(3);
    expect(signed.stderr).toContain('[thread_rolled_back]');
  }
});

test('it is for machines without a key, and keeps its key in its process', async () => {
  const { person, rye, server } = await job();
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const own = await person.rye(['run', 'free', '--unsigned-record'], { env });
  expect(own.code).toBe(2);
  expect(own.stderr).toContain('Remove --unsigned-record');
  const behind = await rye(['run', 'free', '--unsigned-record', '--async']);
  expect(behind.code).toBe(2);
  const { stderr } = await rye(['sign', 'thread', 'nope', '--yes']);
  expect(stderr).toContain('[thread_not_found]');
});

interface Workflow {
  readonly env?: Record<string, string>;
  readonly jobs: Record<string, Job>;
}

interface Job {
  readonly needs?: string;
  readonly env?: Record<string, string>;
  readonly steps: readonly {
    readonly run?: string;
    readonly uses?: string;
    readonly env?: Record<string, string>;
    readonly with?: { readonly path?: string };
  }[];
}

test.each(['docs/ci.md', 'rye schedule --print actions'])(
  'the workflow of %s signs what a job without a signing key ran',
  { timeout: 120_000 },
  async (source) => {
    const { person, checkout, env } = await job();
    const add = ['schedule', 'add', 'nightly', '--cron', '0 4 * * *', '--print', 'actions'];
    const page =
      source === 'docs/ci.md'
        ? (/```yaml\n(.*?)```/s.exec(readFileSync(source, 'utf8'))?.[1] ?? '')
        : (await person.rye([...add, 'directive', 'reports/nightly'])).stdout;
    const workflow = parse(page) as Workflow;
    const { privateKey } = generateKeyPairSync('ed25519');
    const secrets: Record<string, string | undefined> = {
      RYE_SIGNING_KEY: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
      RYE_TRUSTED_KEYS: env.RYE_TRUSTED_KEYS,
      ANTHROPIC_API_KEY: env.ANTHROPIC_API_KEY,
    };
    const told = (given: Record<string, string> = {}): Record<string, string> =>
      Object.fromEntries(
        Object.entries(given).map(([name, text]) => [
          name,
          text.replace(/\$\{\{ secrets\.(\w+) \}\}/, (_, secret: string) => secrets[secret] ?? ''),
        ]),
      );
    const bin = path.join(person.home, 'bin');
    mkdirSync(bin);
    const script = path.join(await cliPackage(), 'bin/rye.js');
    writeFileSync(path.join(bin, 'rye'), `#!/bin/sh\nexec node '${script}' "$@"\n`, {
      mode: 0o755,
    });
    const output: string[] = [];
    const machines: Record<string, string> = {};
    for (const [name, { needs, steps, env: ofJob }] of Object.entries(workflow.jobs)) {
      const folder = path.join(person.home, `machine-${name}`);
      machines[name] = folder;
      cpSync(checkout, folder, { recursive: true });
      const isModel = needs === undefined;
      for (const { run, uses, env: ofStep, with: options } of steps) {
        const all = { ...told(workflow.env), ...told(ofJob), ...told(ofStep) };
        if (isModel) expect(Object.keys(all)).not.toContain('RYE_SIGNING_KEY');
        // an artifact begins at the folder that its paths have in common
        if (uses?.startsWith('actions/download-artifact') && needs !== undefined) {
          expect(options?.path).toBe(source === 'docs/ci.md' ? undefined : '.ai');
          cpSync(machines[needs] ?? '', folder, { recursive: true });
        }
        if (!run?.startsWith('rye ')) continue;
        const { stdout, stderr } = await promisify(execFile)('bash', ['-ec', run], {
          cwd: folder,
          env: {
            PATH: `${bin}:${process.env['PATH']}`,
            HOME: env.HOME,
            GITHUB_RUN_ID: '17',
            GITHUB_RUN_ATTEMPT: '1',
            ...(isModel
              ? { ANTHROPIC_BASE_URL: env.ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY: 'sk-ant-x' }
              : {}),
            ...all,
          },
        });
        output.push(`$ ${run}\n${stdout}${stderr}`);
      }
    }
    expect(output.join('\n')).toContain('signed 1 record with ');
    const last = Object.values(machines).at(-1) ?? '';
    const pem = createPublicKey(privateKey).export({ type: 'spki', format: 'pem' }).toString();
    const verified = await runCli(['verify', 'thread', 'nightly-17-1'], {
      cwd: last,
      env: { HOME: env.HOME, RYE_TRUSTED_KEYS: pem },
    });
    expect(verified.stdout).toContain('ok   origin (signed after the run by ');
    expect(verified.code, verified.stdout).toBe(0);
    expect(existsSync(path.join(env.HOME, '.ai'))).toBe(false);
  },
);
