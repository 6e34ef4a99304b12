import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import type { ExecuteDirectiveRequest, OpenRyeOptions, Rye } from '../../src/kernel/app/api/rye.ts';
import type { LaunchedThread } from '../../src/kernel/app/api/threads.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import type { ThreadRecord } from '../../src/kernel/core/thread.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { openRye } from '../../src/open-rye.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';

/** A project with the library opened on it in this process; launched threads run the built program. */
export interface Lab {
  readonly project: string;
  readonly home: string;
  readonly rye: Rye;
  readonly store: Store;
  /** Another library on the same project, as another process would have it. */
  open(options?: Partial<OpenRyeOptions>): Rye;
  write(file: string, text: string): void;
  /** Signs every directive, tool and hook file of the project. */
  sign(): Promise<void>;
  /** Starts `team/job`, which waits for its gate. */
  job(name: string, request?: Partial<ExecuteDirectiveRequest>): Promise<LaunchedThread>;
  openGate(name: string): void;
  record(threadId: string): Promise<ThreadRecord>;
  /** Resolves when the predicate holds; fails after 15 s. */
  until(what: string, predicate: () => boolean | Promise<boolean>): Promise<void>;
}

const GATE = `import { existsSync, readFileSync, writeFileSync } from 'node:fs';
export const __version__ = '1.0.0';
export const __tool_description__ = 'Wait for a gate.';
export const __traits__ = { reads_only: false, idempotent: true, network: false, timeout_seconds: 1500, risk: 'safe' };
export const CONFIG_SCHEMA = {
  type: 'object',
  properties: { name: { type: 'string' }, others: { type: 'integer' } },
  required: ['name'],
  additionalProperties: false,
};
const { name } = JSON.parse(readFileSync(0, 'utf8'));
writeFileSync('arrived-' + name, '');
const here = process.cwd();
const timer = setInterval(() => {
  // the test is over: nothing else ends a gate whose thread was killed
  if (!existsSync(here)) process.exit(1);
  if (existsSync('broken-' + name)) {
    process.stderr.write('the gate is broken');
    process.exit(1);
  }
  if (!existsSync('gate-' + name) && !existsSync('gate-all')) return;
  clearInterval(timer);
  process.stdout.write(JSON.stringify({ passed: name }));
}, 10);
`;

/** A directive with steps; `limits` are attributes, `grants` ids of tools and directives. */
export function directive(
  id: string,
  parts: {
    readonly steps: string;
    readonly limits?: string;
    readonly tools?: readonly string[];
    readonly directives?: readonly string[];
    readonly inputs?: string;
    readonly outputs?: string;
    readonly hooks?: string;
  },
): string {
  const name = id.split('/').at(-1) ?? id;
  const category = id.split('/').slice(0, -1).join('/');
  const grant = (tag: string, ids: readonly string[] = []): string =>
    ids.map((one) => `<${tag}>${one}</${tag}>`).join('');
  return `# ${name}

\`\`\`xml
<directive name="${name}" version="1.0.0">
  <metadata>
    <description>${name}</description>
    <category>${category}</category>
    <author>test</author>
    <limits ${parts.limits ?? 'turns="5" spend="0.01"'} />
    <permissions><execute>${grant('tool', parts.tools)}${grant('directive', parts.directives)}</execute></permissions>
    ${parts.hooks ?? ''}
  </metadata>
  <inputs>${parts.inputs ?? ''}</inputs>
  <outputs>${parts.outputs ?? ''}</outputs>
  <process>${parts.steps}</process>
</directive>
\`\`\`

Do the steps.
`;
}

const JOB = directive('team/job', {
  limits: 'turns="5" spend="0.01" spawns="300" depth="5"',
  tools: ['team/gate'],
  inputs: '<input name="name" type="string" required="true">Gate.</input>',
  outputs:
    '<output name="passed" type="string" required="true" from="${steps.gate.data.passed}">Gate.</output>',
  steps:
    '<step name="gate"><execute item_type="tool" item_id="team/gate"><param name="name">{input:name}</param></execute></step>',
});

/** Makes a lab that is removed when the running test ends; then none of its processes is left. */
export async function lab(options: { readonly coordination?: string } = {}): Promise<Lab> {
  const folder = await cliPackage();
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-kids-')));
  const project = path.join(root, 'project');
  const home = path.join(root, 'home');
  mkdirSync(project);
  mkdirSync(home);
  const opened: Rye[] = [];
  const open = (more: Partial<OpenRyeOptions> = {}): Rye => {
    const rye = openRye({
      projectPath: project,
      userSpacePath: home,
      env: { PATH: process.env['PATH'], HOME: home },
      program: [path.join(folder, 'bin', 'rye.js')],
      ...more,
    });
    opened.push(rye);
    return rye;
  };
  const rye = open();
  const store = openStore({ projectPath: project, clock: systemClock, ids: systemIds });
  const write = (file: string, text: string): void => {
    const full = path.join(project, file);
    mkdirSync(path.dirname(full), { recursive: true });
    writeFileSync(full, text);
  };
  const until: Lab['until'] = async (what, predicate) => {
    const deadline = performance.now() + 120_000;
    while (!(await predicate())) {
      if (performance.now() > deadline) throw new Error(`${what} did not happen`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  onTestFinished(async () => {
    for (const { pid } of await store.registry.list({ active: true })) {
      if (pid !== null && pid !== process.pid) endQuietly(pid);
    }
    const pids = (await store.registry.list({})).flatMap(({ pid }) => pid ?? []);
    // ended threads still write their exports for a moment
    await until('the end of all processes', () => processesOf(project, pids).length === 0);
    for (const one of opened) one.close();
    store.close();
    removeFolder(root);
  });
  await rye.init();
  write('.ai/tools/team/gate.mjs', GATE);
  write('.ai/directives/team/job.md', JOB);
  if (options.coordination) {
    write('.ai/config/agent/coordination.yaml', options.coordination);
    await rye.items.sign('config', 'agent/coordination');
  }
  const made: Lab = {
    project,
    home,
    rye,
    store,
    open,
    write,
    until,
    sign: async () => {
      const outcomes = [
        ...(await rye.items.sign('directive', '*')),
        ...(await rye.items.sign('tool', '*')),
        ...(existsSync(path.join(project, '.ai/config/agent/hooks.yaml'))
          ? await rye.items.sign('config', 'agent/hooks')
          : []),
      ];
      const failed = outcomes.filter(({ status }) => status === 'failed');
      if (failed.length > 0) throw new Error(JSON.stringify(failed, null, 2));
    },
    job: async (name, request = {}) =>
      await rye.children.launch({
        directiveId: 'team/job',
        inputs: { name },
        raiseLimits: true,
        ...request,
      }),
    openGate: (name) => write(`gate-${name}`, ''),
    record: async (threadId) => {
      const record = await store.registry.get(threadId);
      if (!record) throw new Error(`thread not found: ${threadId}`);
      return record;
    },
  };
  await made.sign();
  return made;
}

function endQuietly(pid: number): void {
  for (const target of [-pid, pid]) {
    try {
      process.kill(target, 'SIGKILL');
    } catch {
      // it is gone, or leads no group
    }
  }
}

/** The processes of this machine whose command line names the project: what a lab has left running. */
export function processesOf(project: string, pids: readonly number[]): readonly number[] {
  return pids.filter((pid) => {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
      const state = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.[0];
      return line.includes(project) && state !== 'Z';
    } catch {
      return false;
    }
  });
}
