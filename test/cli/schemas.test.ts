import { execFileSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { schemaFiles } from '../../scripts/document-schemas/files.ts';
import { type Command, loadTree } from '../../src/faces/cli/command.ts';
import { ROOT } from '../../src/faces/cli/root.ts';
import { readPublicKey } from '../../src/kernel/trust/keys.ts';
import { temporaryWorkspace, type Workspace } from '../helpers/workspace.ts';

const SCHEMAS = path.resolve(import.meta.dirname, '../../docs/schemas');

/** The commands whose documents each schema describes; `{id}` is a finished thread, the rest is in `names`. */
const DOCUMENTS: Readonly<Record<string, readonly string[]>> = {
  chat: ['chat'],
  approval: ['approvals show {asked}'],
  approvals: ['approvals list'],
  'approval-decided': [
    'approve {asked} --no-resume',
    'deny {asked} --comment Late.',
    'answer nope 1',
  ],
  'approval-verify': ['approvals verify {asked}'],
  'config-path': ['config path'],
  'config-show': ['config show', 'config get resilience.limits.turns'],
  doctor: ['doctor'],
  failure: [
    'run nope',
    'ask Why?',
    'frobnicate',
    'keys init',
    'mcp test nope',
    'threads open {id}',
    'worker --token nope',
    'fleet init --database nope',
    'fleet enroll',
    'fleet root',
    'fleet status',
    'fleet workers',
    'fleet queues',
    'fleet drain nope',
    'fleet pause nope',
    'fleet limits nope --global 1',
  ],
  // with a fleet: test/fleet/commands.test.ts
  'fleet-drain': [],
  'fleet-enroll': [],
  'fleet-init': [],
  'fleet-queue': [],
  'fleet-queues': [],
  'fleet-root': [],
  'fleet-status': [],
  'fleet-workers': [],
  fetch: ['fetch directive hello'],
  'hooks-explain': ['hooks explain hello'],
  'hooks-list': ['hooks list'],
  'hooks-schema': ['hooks schema', 'hooks schema tool_gate'],
  'import-rye-os': ['import rye-os {project}'],
  init: ['init'],
  mcp: ['mcp list'],
  'mcp-add': ['mcp add clock -- node clock.mjs'],
  'keys-export': ['keys export'],
  'keys-key': [
    'keys trust {pem}',
    'keys untrust {key}',
    'keys trust {pem}',
    'keys revoke {key}',
    'keys protect --off',
  ],
  'keys-list': ['keys list'],
  new: ['new directive {fresh}', 'new hook {fresh}'],
  'git-setup': ['git setup'],
  'keys-publish': ['keys publish'],
  'keys-rotate': ['keys rotate'],
  launched: [
    'run hello --async',
    'schedule run kept',
    'execute tool rye/core/greet --param who=Ada --async',
  ],
  list: ['list directive', 'list tool', 'list knowledge'],
  'lock-accept': ['lock accept'],
  'lock-status': ['lock status'],
  'models-list': ['models list'],
  'models-prices': ['models prices'],
  'models-use': ['models use literal'],
  plan: ['run hello --dry-run', 'execute directive rye/core/project_report --dry-run'],
  'rules-list': ['rules list'],
  'rules-scan': ['rules scan {project}'],
  'rules-test': ["rules test eval('1') --tool write --path a.ts"],
  schedule: [
    'schedule add {fresh} --cron {cron} directive hello',
    'schedule pause {fresh}',
    'schedule resume {fresh}',
    'schedule remove {fresh}',
  ],
  'schedule-list': ['schedule list', 'schedule'],
  'schedule-timer': ['schedule add other --cron {cron} --print systemd hello'],
  search: ['search knowledge hello', 'search all greet'],
  sign: ['sign directive example', 'edit example'],
  'sign-thread': ['sign thread {unsigned} --dry-run', 'sign thread {unsigned} --yes'],
  'thread-result': [
    'run hello',
    'run hello --limit turns=1',
    'threads resume {ended} --message More.',
    'resume {ended} --message More.',
    'attach {ended}',
    'threads attach {ended}',
  ],
  'threads-entries': ['threads entries {id}', 'threads entries {tree} --filter all --search greet'],
  'threads-entry': ['threads entries {tree} --entry {entry}'],
  'threads-export': ['threads export {id}', 'threads export {id} --redact --out page.html'],
  'threads-branch': ['threads branch {tree} --at root', 'threads branch {tree} --at {entry} --new'],
  'threads-cancel': ['threads cancel {id}', 'stop {id}'],
  'threads-compact': ['threads compact {tree}'],
  'threads-deliveries': ['threads deliveries {id}'],
  'threads-gc': ['threads gc --older-than 0d --dry-run'],
  'threads-import': ['threads import {session}'],
  'threads-kill': ['threads kill {id}'],
  'threads-rename': ['threads rename {tree} Titled'],
  'threads-label': ['threads label {tree} {entry} here', 'threads label {tree} {entry}'],
  'threads-list': ['threads list', 'ps'],
  'threads-logs': ['threads logs {id}', 'logs {id}'],
  'threads-pull': ['threads pull {id}'],
  'threads-recover': ['threads recover'],
  'threads-replay': ['threads replay {id}', 'threads replay {id} --verify'],
  'threads-receipt': ['threads receipt {id}'],
  'threads-show': ['threads show {id}', 'show {id}'],
  'threads-stats': ['threads stats'],
  'threads-steer': ['threads steer {id} Later.'],
  'threads-tree': ['threads tree', 'tree'],
  'threads-undo': ['threads undo {id} --dry-run', 'threads undo {id}'],
  'threads-wait': ['threads wait {id}'],
  'tool-result': [
    'execute tool rye/core/greet --param who=Ada',
    'execute tool rye/file-system/ls --param path=.',
  ],
  validate: ['validate'],
  verify: ['verify directive example'],
  'verify-thread': ['verify thread {id}'],
};

/** A directive whose only step waits for a person. */
const ASKING = `\`\`\`xml
<directive name="asking" version="1.0.0">
  <metadata>
    <description>Asks.</description><category></category><author>a</author>
    <model provider="literal" />
    <limits turns="3" spend="0.01" />
    <permissions><execute><tool ask="true">rye/file-system/ls</tool></execute></permissions>
  </metadata>
  <process><step name="look"><execute item_type="tool" item_id="rye/file-system/ls"><param name="path">.</param></execute></step></process>
</directive>
\`\`\`
`;

/** Commands without a JSON document. */
const WITHOUT: ReadonlySet<string> = new Set([
  'completion',
  'fleet try',
  'open',
  'threads open',
  // a signal ends it; test/schedules/cli.test.ts reads its document
  'schedule serve',
]);

let here: Workspace & { readonly remove: () => void };
/** Values for the placeholders above. */
const names: Record<string, string> = {};

beforeAll(async () => {
  here = await temporaryWorkspace({});
  execFileSync('git', ['init', '-q', here.project]);
  const pem = path.join(here.project, 'key.pem');
  const { publicKey } = generateKeyPairSync('ed25519');
  writeFileSync(pem, publicKey.export({ type: 'spki', format: 'pem' }));
  const session = path.join(here.project, 'session.jsonl');
  writeFileSync(session, '{"type":"session","version":3,"id":"s-1"}\nbroken\n');
  const id = String((await here.json(['run', 'hello']))['thread_id']);
  await here.rye(['threads', 'steer', id, 'Later.']);
  const tree = String((await here.json(['run', 'hello']))['thread_id']);
  const ended = String((await here.json(['run', 'hello']))['thread_id']);
  const { entries } = await here.json(['threads', 'entries', tree, '--filter', 'user-only']);
  const [{ id: entry = '' } = {}] = entries as readonly { id?: string }[];
  const key = String((await here.json(['keys', 'trust', pem]))['key_id']);
  const asking = path.join(here.project, '.ai/directives/asking.md');
  writeFileSync(asking, ASKING);
  await here.rye(['sign', 'directive', 'asking']);
  const [asked] = (await here.json(['run', 'asking']))['approvals'] as readonly string[];
  await here.rye(['schedule', 'add', 'kept', '--cron', '0 3 * * *', 'hello']);
  Object.assign(names, { cron: '0 3 * * *', id, tree, ended, entry, pem, key, session });
  Object.assign(names, { asked, project: here.project });
  const { pem: own } = await here.json(['keys', 'export']);
  const job = { HOME: path.join(here.home, 'job'), RYE_TRUSTED_KEYS: String(own) };
  mkdirSync(job.HOME);
  const run = await here.json(['run', 'hello', '--unsigned-record'], { env: job });
  Object.assign(names, { unsigned: run['thread_id'] });
});
afterAll(() => here.remove());

let attempts = 0;

/** Names of things that no case has used, also not one that is tried again. */
function freshNames(): Readonly<Record<string, string>> {
  attempts += 1;
  const text = generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' });
  const pem = path.join(here.project, `key-${attempts}.pem`);
  writeFileSync(pem, text);
  return { pem, key: readPublicKey(String(text), pem).keyId, fresh: `fresh-${attempts}` };
}

function words(command: string): string[] {
  return command
    .split(' ')
    .map((word) => word.replace(/\{(\w+)\}/, (_, name: string) => names[name] ?? ''));
}

/** `threads list`, `run` and so on: every command that does something. */
function leavesOf({ commands = [] }: Command, prefix = ''): string[] {
  return commands.flatMap((one) =>
    one.commands ? leavesOf(one, `${prefix}${one.name} `) : [`${prefix}${one.name}`],
  );
}

it('the generated schemas are up to date (else: npm run docs:schemas)', () => {
  const root = path.resolve(SCHEMAS, '../..');
  const generated = schemaFiles();
  const written = [...generated.keys()].map((file) => [
    file,
    readFileSync(path.join(root, file), 'utf8'),
  ]);
  expect(Object.fromEntries(written)).toEqual(Object.fromEntries(generated));
  const published = [
    'docs/schemas',
    'docs/schemas/config',
    'docs/schemas/log',
    'src/kernel/schemas',
  ].flatMap((folder) =>
    readdirSync(path.join(root, folder))
      .filter((file) => file.endsWith('.json'))
      .map((file) => `${folder}/${file}`),
  );
  expect(published.toSorted()).toEqual([...generated.keys()].toSorted());
});

describe('each JSON document matches its published schema', () => {
  const schemas = new Ajv2020({ allErrors: true, allowUnionTypes: true });

  it.each(Object.entries(DOCUMENTS))('%s', async (name, commands) => {
    const schema = JSON.parse(readFileSync(path.join(SCHEMAS, `${name}.json`), 'utf8')) as object;
    const validate = schemas.compile(schema);
    Object.assign(names, freshNames());
    for (const command of commands) {
      const document = await here.json(words(command), { env: { EDITOR: 'true' } });
      validate(document);
      expect(document['warnings'], command).toEqual(expect.any(Array));
      expect(validate.errors ?? [], command).toEqual([]);
    }
  });

  it.each<readonly [string, object, object]>([
    [
      'rules-test',
      { hits: [{ rule: 'js', interrupts: false }] },
      { checked: 1, notes: [], unsigned: [], total: 1 },
    ],
    [
      'rules-scan',
      { hits: [{ rule: 'js', interrupts: true, path: 'a.ts' }] },
      { files: 1, skipped: 0, notes: [], unsigned: [], total: 1 },
    ],
    [
      'threads-wait',
      {
        threads: [
          {
            thread_id: 'gone',
            final_thread_id: 'gone',
            directive: '',
            status: 'not_found',
            done: false,
            result: '',
          },
        ],
      },
      { timed_out: false, total: 1 },
    ],
    [
      'verify-thread',
      { checks: [{ name: 'plan', ok: false, error: { code: 'c', message: 'm' }, offset: 7 }] },
      { thread_id: 't', ok: false, warnings: [] },
    ],
    [
      'hooks-list',
      {
        hooks: [
          {
            id: 'h',
            layer: 1,
            origin: 'a:1',
            enabled: true,
            position: 'before',
            wrap: true,
            timeout_seconds: 0.5,
            on_error: 'fail',
            capabilities: ['rye.search.*'],
            event: 'error',
            actions: [],
          },
        ],
      },
      { total: 1 },
    ],
  ])('%s allows %j', (name, part, rest) => {
    const text = readFileSync(path.join(SCHEMAS, `${name}.json`), 'utf8');
    const validate = schemas.compile(JSON.parse(text) as object);
    validate({ success: false, warnings: [], ...rest, ...part });
    expect(validate.errors ?? []).toEqual([]);
  });

  it('and every schema is tried', () => {
    const published = readdirSync(SCHEMAS).flatMap((file) => /^(.+)\.json$/.exec(file)?.[1] ?? []);
    expect(published.toSorted()).toEqual(Object.keys(DOCUMENTS).toSorted());
  });

  it('and every command has one', async () => {
    const tried = Object.values(DOCUMENTS).flat();
    const untried = leavesOf(await loadTree(ROOT)).filter(
      (leaf) =>
        !WITHOUT.has(leaf) && !tried.some((command) => `${command} `.startsWith(`${leaf} `)),
    );
    expect(untried).toEqual([]);
  });
});
