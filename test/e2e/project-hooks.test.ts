import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import {
  calls,
  reply,
  startWireServer,
  toolUse,
  type WireScript,
  type WireTurn,
} from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

/** The hooks file of the product's design document, word for word. */
const DESIGN_HOOKS = `hooks:
  - id: "inject_project_conventions"
    event: "thread_started"
    action:
      primary: "fetch"
      item_type: "knowledge"
      item_id: "project/conventions"
    description: "Inject project conventions into every thread"

  - id: "inject_api_types"
    event: "thread_started"
    condition:
      path: "directive"
      op: "contains"
      value: "api"
    action:
      primary: "fetch"
      item_type: "knowledge"
      item_id: "project/api-types"
    description: "Inject API types for API-related directives only"

  - id: "record_learnings"
    event: "after_complete"
    condition:
      path: "cost.turns"
      op: "gte"
      value: 3
    action:
      primary: "execute"
      item_type: "directive"
      item_id: "project/record-learnings"
    description: "Record learnings after substantial threads"
`;

function write(root: string, file: string, text: string): void {
  const target = path.join(root, '.ai', file);
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, text);
}

const note = (name: string, body: string): string =>
  `---\nname: ${name}\ntitle: ${name}\nversion: "1.0.0"\nentry_type: reference\ncategory: project\n---\n\n${body}\n`;

const directive = (id: string, metadata = ''): string => {
  const at = id.lastIndexOf('/');
  const category = `<category>${id.slice(0, Math.max(at, 0))}</category>`;
  return `\`\`\`xml\n<directive name="${id.slice(at + 1)}" version="1.0.0"><metadata><description>d</description>${category}<author>a</author>${metadata}</metadata></directive>\n\`\`\`\n\nDo the work.\n`;
};

/** A call that lists another folder each time. */
function lists(index: number): WireTurn {
  return calls(
    toolUse('rye_file_system_ls', { path: ['.', '.ai', '.ai/config'][index] }, `t${index}`),
  );
}

async function lab(files: Readonly<Record<string, string>>, script: WireScript) {
  const here = await workspace();
  for (const [file, text] of Object.entries(files)) write(here.project, file, text);
  for (const type of ['directive', 'knowledge']) {
    if (!Object.keys(files).some((file) => file.startsWith(type))) continue;
    const signed = await here.rye(['sign', type, '*']);
    expect(signed.code, signed.stderr).toBe(0);
  }
  const signed = await here.rye(['sign', 'config', 'agent/hooks']);
  expect(signed.code, signed.stderr).toBe(0);
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  return { here, server, env: { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url } };
}

interface HookFired {
  readonly id: string;
  readonly outcome: string;
}

function fired(here: Workspace, threadId: string): readonly HookFired[] {
  const log = path.join(here.project, '.ai/state/threads', threadId, 'transcript.jsonl');
  return readFileSync(log, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { event_type: string; payload: HookFired })
    .filter(({ event_type }) => event_type === 'hook_fired')
    .map(({ payload }) => payload);
}

test("the design document's hooks file acts on directives that grant nothing", async () => {
  const { here, server, env } = await lab(
    {
      'config/agent/hooks.yaml': DESIGN_HOOKS,
      'knowledge/project/conventions.md': note('conventions', 'CONVENTIONS-TEXT'),
      'knowledge/project/api-types.md': note('api-types', 'API-TYPES-TEXT'),
      'directives/plain.md': directive('plain'),
      'directives/team/api-work.md': directive('team/api-work'),
      'directives/project/record-learnings.md': directive('project/record-learnings'),
    },
    () => reply('Done.'),
  );
  const plain = await here.rye(['run', 'plain'], { env });
  expect(plain.code, plain.stderr).toBe(0);
  expect(plain.stderr).not.toContain('cannot run');
  const first = JSON.stringify(server.requests[0]?.body.messages);
  expect(first).toContain('CONVENTIONS-TEXT');
  expect(first).not.toContain('API-TYPES-TEXT');
  await here.rye(['run', 'team/api-work'], { env });
  expect(JSON.stringify(server.requests[1]?.body.messages)).toMatch(
    /CONVENTIONS-TEXT[\s\S]*API-TYPES-TEXT/,
  );
  const explained = (await here.json(['hooks', 'explain', 'plain'])) as {
    hooks: { hook: { id: string }; would_fire: boolean; depends_on: string[]; because: string }[];
  };
  const by = Object.fromEntries(explained.hooks.map((one) => [one.hook.id, one]));
  expect(by['inject_project_conventions']).toMatchObject({ would_fire: true });
  expect(by['inject_api_types']).toMatchObject({ would_fire: false, depends_on: [] });
  expect(by['record_learnings']).toMatchObject({ would_fire: false, depends_on: ['cost.turns'] });
});

test('an after_complete hook of a signed project file starts its directive', async () => {
  const { here, server, env } = await lab(
    {
      'config/agent/hooks.yaml': DESIGN_HOOKS,
      'knowledge/project/conventions.md': note('conventions', 'C'),
      'knowledge/project/api-types.md': note('api-types', 'A'),
      'directives/plain.md': directive(
        'plain',
        '<permissions><execute><tool>rye/file-system/ls</tool></execute></permissions>',
      ),
      'directives/project/record-learnings.md': directive(
        'project/record-learnings',
        '<limits turns="2" spend="0.1"/>',
      ),
    },
    ({ index }) => (index < 2 ? lists(index) : reply(index === 2 ? 'Done.' : 'Recorded.')),
  );
  const run = await here.rye(['run', 'plain'], { env });
  expect(run.code, run.stderr).toBe(0);
  expect(server.requests.length).toBeGreaterThanOrEqual(2);
  const { threads } = (await here.json(['threads', 'list'])) as {
    threads: { directive: string; status: string }[];
  };
  expect(threads.find((thread) => thread.directive === 'project/record-learnings')?.status).toBe(
    'completed',
  );
});

test('a project file gets no more than the user allows, and an action beyond it is a warning', async () => {
  const hooks = `hooks:
  - { id: list_files, event: thread_started, action: { primary: execute, item_type: tool, item_id: rye/file-system/ls } }
`;
  const files = {
    'config/agent/hooks.yaml': hooks,
    'directives/plain.md': directive('plain'),
  };
  const { here, server, env } = await lab(files, () => reply('Done.'));
  const missing = 'rye.execute.tool.rye.file-system.ls';
  const { plan } = (await here.json(['run', 'plain', '--dry-run'], { env })) as {
    plan: { warnings: string[] };
  };
  expect(plan.warnings.join('\n')).toContain(`hook list_files cannot run: it needs ${missing}`);
  const explained = await here.rye(['hooks', 'explain', 'plain', '--event', 'thread_started']);
  expect(explained.stdout).toContain(`it cannot run: it needs ${missing}`);
  const refused = await here.rye(['run', 'plain'], { env });
  expect(refused.code).toBe(0);
  expect(refused.stderr).toContain(`hook list_files cannot run: it needs ${missing}`);
  expect(JSON.stringify(server.requests[0]?.body.messages)).not.toContain('.gitignore');

  // a project's own declaration grants nothing beyond what the user allows
  write(here.project, 'config/agent/hooks.yaml', `capabilities: [${missing}]\n${hooks}`);
  await here.rye(['sign', 'config', 'agent/hooks']);
  const declared = await here.rye(['run', 'plain'], { env });
  expect(declared.stderr).toContain('hook list_files cannot run');

  mkdirSync(path.join(here.home, '.ai/config/agent'), { recursive: true });
  writeFileSync(
    path.join(here.home, '.ai/config/agent/hooks.yaml'),
    'project_capabilities: ["rye.fetch.*", "rye.execute.tool.rye.file-system.*"]\n',
  );
  await here.rye(['sign', 'config', 'agent/hooks', '--space', 'user']);
  const allowed = await here.rye(['run', 'plain'], { env });
  expect(allowed.stderr).not.toContain('cannot run');
  expect(JSON.stringify(server.requests.at(-1)?.body.messages)).toContain('.ai');
});

test('a project hook on error is asked before the builtin default and decides', async () => {
  const hooks = `hooks:
  - id: again
    event: error
    condition: { path: error.status, op: eq, value: 403 }
    action: { control: retry, delay_seconds: 0 }
`;
  const { here, env } = await lab(
    { 'config/agent/hooks.yaml': hooks, 'directives/plain.md': directive('plain') },
    ({ index }) =>
      index === 0
        ? { status: 403, error: { type: 'permission_error', message: 'not today' } }
        : reply('Done.'),
  );
  const explained = await here.rye(['hooks', 'explain', 'plain', '--event', 'error']);
  const order = explained.stdout.split('\n').map((line) => line.trim().split(/\s+/));
  const ids = order.map((cells) => cells[3]).filter((id) => id !== undefined && id !== 'HOOK');
  expect(ids.indexOf('again')).toBeLessThan(ids.indexOf('default_fail_permanent'));
  expect(explained.stdout).toMatch(/maybe.*again.*depends on error\.status/);
  const run = (await here.json(['run', 'plain'], { env })) as {
    success: boolean;
    thread_id: string;
  };
  expect(run.success).toBe(true);
  const log = fired(here, run.thread_id).filter(({ id }) =>
    ['again', 'default_fail_permanent'].includes(id),
  );
  expect(log.map(({ id, outcome }) => [id, outcome])).toEqual([
    ['again', 'retry'],
    ['default_fail_permanent', 'superseded'],
  ]);
});

test('a project hook on limit escalates before the builtin default ends the thread', async () => {
  const hooks = `hooks:
  - { id: esc, event: limit, action: { control: escalate, limit: turns, to: 4 } }
`;
  const { here, env } = await lab(
    {
      'config/agent/hooks.yaml': hooks,
      'directives/plain.md': directive(
        'plain',
        '<limits turns="2"/><permissions><execute><tool>rye/file-system/ls</tool></execute></permissions>',
      ),
    },
    ({ index }) => (index < 3 ? lists(index) : reply('Done.')),
  );
  const run = (await here.json(['run', 'plain'], { env })) as {
    success: boolean;
    thread_id: string;
  };
  expect(run.success).toBe(true);
  const log = fired(here, run.thread_id).filter(({ id }) =>
    ['esc', 'default_fail_limit'].includes(id),
  );
  expect(log.map(({ id, outcome }) => [id, outcome])).toEqual([
    ['esc', 'escalate'],
    ['default_fail_limit', 'superseded'],
  ]);
});

test('inject interpolates the context of its event in YAML and in a directive', async () => {
  const hooks = `hooks:
  - { id: y, event: thread_started, action: { inject: "dir=\${directive} turns=\${limits.turns} none=\${inputs.none}." } }
`;
  const { here, server, env } = await lab(
    {
      'config/agent/hooks.yaml': hooks,
      'directives/plain.md': directive(
        'plain',
        '<hooks><hook id="x" event="thread_started"><action inject="own=${directive}"/></hook></hooks>',
      ),
    },
    () => reply('Done.'),
  );
  const run = await here.rye(['run', 'plain'], { env });
  expect(run.code, run.stderr).toBe(0);
  const sent = JSON.stringify(server.requests[0]?.body.messages);
  expect(sent).toContain('dir=plain turns=25 none=.');
  expect(sent).toContain('own=plain');
});

test('a directive hook routes on the parts of the model that it asks for', async () => {
  const hooks = `hooks:
  - id: route_fast
    event: resolve_extends
    condition: { path: model.tier, op: eq, value: fast }
    action: { set_extends: base }
  - id: shared
    event: thread_started
    condition: { not: { path: cost.turns, op: exists } }
    action: { inject: "shared condition" }
`;
  const { here, env } = await lab(
    {
      'config/agent/hooks.yaml': hooks,
      'directives/base.md': directive('base'),
      'directives/plain.md': directive('plain', '<model tier="fast"/>'),
    },
    () => reply('Done.'),
  );
  const { plan } = (await here.json(['run', 'plain', '--dry-run'], { env })) as {
    plan: { chain: { id: string }[] };
  };
  expect(plan.chain.map(({ id }) => id)).toEqual(['base', 'plain']);
});

test('a dry run marks the hooks that the directive suppresses', async () => {
  const { here, env } = await lab(
    {
      'config/agent/hooks.yaml': DESIGN_HOOKS,
      'knowledge/project/conventions.md': note('conventions', 'C'),
      'knowledge/project/api-types.md': note('api-types', 'A'),
      'directives/plain.md': directive(
        'plain',
        '<context><suppress>project/conventions</suppress></context>',
      ),
      'directives/project/record-learnings.md': directive('project/record-learnings'),
    },
    () => reply('Done.'),
  );
  const { stdout } = await here.rye(['run', 'plain', '--dry-run'], { env });
  expect(stdout).toMatch(/inject_project_conventions on thread_started.*suppressed/);
  expect(stdout).not.toMatch(/inject_api_types on thread_started.*suppressed/);
});

test('an unknown member of a hooks file is refused, so that a typo removes no guard', async () => {
  const { here, env } = await lab(
    {
      'config/agent/hooks.yaml': 'hooks: []\n',
      'directives/plain.md': directive('plain'),
    },
    () => reply('Done.'),
  );
  write(here.project, 'config/agent/hooks.yaml', 'hoks:\n  - { id: a }\n');
  const signed = await here.rye(['sign', 'config', 'agent/hooks']);
  expect(signed.code).toBe(2);
  expect(`${signed.stdout}${signed.stderr}`).toContain('unknown member "hoks"');
  const run = await here.rye(['run', 'plain'], { env });
  expect(run.code).toBe(3);
  expect(run.stderr).toContain('guard_changed');
});
