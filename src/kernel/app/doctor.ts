import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { join } from 'node:path';
import { type ErrorInfo, EXIT, messageOf, RyeError, toRyeError } from '../core/errors.ts';
import { isActive } from '../core/thread.ts';
import { isTaintNote } from '../policy/risk.ts';
import { resolveModel } from '../providers/resolve-model.ts';
import { resolveDirective } from '../threads/prepare/directive.ts';
import { planCapabilities } from '../threads/prepare/policy.ts';
import { unlistedThreads } from '../threads/recovery/repair.ts';
import { closeSandbox } from '../tools/proxied-sandbox.ts';
import { sandboxState } from '../tools/sandbox.ts';
import type { DoctorLine } from './api/rye.ts';
import { featuresOf, pluginsOf } from './feature.ts';
import { reportGuards } from './guards.ts';
import { modelsOf } from './models.ts';
import { readThreadConfig } from './settings.ts';
import { threadPorts } from './thread-env.ts';
import { threadFiles } from './thread-files.ts';
import type { Workspace } from './workspace.ts';

type Finding = Omit<DoctorLine, 'check'>;

const MAX_SHOWN = 5;
const CONFIG = 'configuration';

/** Looks at keys, configuration, providers, tools, the sandbox and the state of threads. Changes nothing. */
export async function examine(workspace: Workspace): Promise<readonly DoctorLine[]> {
  const checks: readonly (readonly [string, () => Finding | Promise<Finding>])[] = [
    ['project', () => checkProject(workspace)],
    ['signing key', () => checkKey(workspace)],
    ['system space', () => checkSystem(workspace)],
    [CONFIG, () => checkConfig(workspace)],
    ['guards', () => checkGuards(workspace)],
    ['models', () => checkModels(workspace)],
    ['state folder', () => checkState(workspace)],
    ...DATABASES.map((name) => [NAMES[name], () => checkDatabase(workspace, name)] as const),
    ['threads', () => checkThreads(workspace)],
    ['file copies', () => checkCopies(workspace)],
    ['sandbox', () => checkSandbox(workspace)],
    ...(workspace.spaces.find('config', 'plugins') === undefined
      ? []
      : [['plug-ins', () => checkPlugins(workspace)] as const]),
    ['taint', () => checkTaint(workspace)],
    ['python', () => checkProgram('python3', 'tools written in Python cannot be described or run')],
    ['ripgrep', () => checkProgram('rg', 'grep uses its built-in engine, which is slower')],
  ];
  const lines: DoctorLine[] = [];
  for (const [check, look] of checks) {
    try {
      lines.push({ check, ...(await look()) });
    } catch (error) {
      if (
        isOfConfig(error) &&
        lines.some((line) => line.check === CONFIG && line.status === 'fail')
      ) {
        lines.push({
          check,
          status: 'warn',
          detail: 'not checked: the configuration has mistakes',
        });
        continue;
      }
      const hint = error instanceof RyeError ? error.hint : undefined;
      lines.push({
        check,
        status: 'fail',
        detail: messageOf(error),
        ...(hint === undefined ? {} : { hint }),
      });
    }
  }
  return [...lines, ...(await featureLines(workspace))];
}

/** The lines of features. One that fails is a line itself. */
async function featureLines(workspace: Workspace): Promise<readonly DoctorLine[]> {
  const lines = featuresOf(workspace).map(
    async ({ name, checks }): Promise<readonly DoctorLine[]> => {
      try {
        return (await checks?.(workspace)) ?? [];
      } catch (error) {
        const hint = error instanceof RyeError ? { hint: error.hint ?? '' } : {};
        return [{ check: name, status: 'fail', detail: messageOf(error), ...hint }];
      }
    },
  );
  return (await Promise.all(lines)).flat();
}

function checkProject(workspace: Workspace): Finding {
  const { projectPath } = workspace.options;
  if (existsSync(join(projectPath, '.ai'))) return { status: 'ok', detail: projectPath };
  return { status: 'warn', detail: `${projectPath} has no .ai folder`, hint: 'Run: rye init' };
}

function checkKey(workspace: Workspace): Finding {
  return { status: 'ok', detail: workspace.keyring.signer().keyId };
}

function checkSystem(workspace: Workspace): Finding {
  const found = workspace.spaces.find('directive', 'hello', { space: 'system' });
  if (!found)
    return { status: 'fail', detail: 'shipped items are missing', hint: 'Install rye again.' };
  return {
    status: 'ok',
    detail: `${Object.keys(workspace.verification.manifest).length} files in the manifest of this release`,
  };
}

/** Every mistake of every file, because one at a time makes a person run the command again for each. */
async function checkConfig(workspace: Workspace): Promise<Finding> {
  const config = await workspace.config();
  const mistakes: string[] = [];
  let hint: string | undefined;
  const collect = async (look: () => Promise<unknown>): Promise<void> => {
    try {
      await look();
    } catch (error) {
      if (error instanceof RyeError) hint ??= error.hint;
      mistakes.push(messageOf(error));
    }
  };
  for (const name of config.names()) await collect(async () => await config.load(name));
  if (mistakes.length === 0) await collect(async () => await readThreadConfig(config));
  if (mistakes.length === 0) return { status: 'ok', detail: `${config.names().length} files read` };
  return { status: 'fail', detail: mistakes.join('; '), ...(hint === undefined ? {} : { hint }) };
}

function isOfConfig(error: unknown): boolean {
  return error instanceof RyeError && error.code === 'config_invalid';
}

async function checkGuards(workspace: Workspace): Promise<Finding> {
  const { files, serial, changes, ignored, refusal } = await reportGuards(workspace);
  if (refusal) {
    return { status: 'fail', detail: `runs are refused: ${refusal.message}`, ...hintOf(refusal) };
  }
  const [first, ...others] = ignored;
  if (first !== undefined) {
    const more = others.length === 0 ? '' : ` And ${others.length} more: rye validate`;
    return { status: 'warn', detail: `${first}${more}` };
  }
  const detail = `${files.length} power file${files.length === 1 ? '' : 's'} pinned (configuration and hooks that decide what runs)`;
  if (serial !== null || changes.length > 0 || files.length === 0) {
    return { status: 'ok', detail: serial === null ? detail : `${detail}, lock version ${serial}` };
  }
  return {
    status: 'warn',
    detail: `${detail} by earlier runs, without a lock file`,
    hint: 'Run: rye lock accept',
  };
}

function hintOf({ hint }: ErrorInfo): Pick<Finding, 'hint'> {
  return hint === undefined ? {} : { hint };
}

async function checkModels(workspace: Workspace): Promise<Finding> {
  const choices = await modelsOf(workspace).choices();
  const { usable, missing = {} } = choices;
  if (usable.length === 0) {
    return {
      status: 'warn',
      detail: 'no provider has a key: only directives with explicit steps run (provider literal)',
      hint: `Set one in the environment or in ~/.ai/.env: ${Object.entries(missing)
        .filter(([, variables]) => variables.length > 0)
        .map(([name, variables]) => `${name} needs ${variables.join(' and ')}`)
        .join(', ')}.`,
    };
  }
  const { provider, id } = resolveModel({}, choices);
  const { keysOf } = await import('./provider-facts.ts');
  const keys = keysOf(choices.catalog, workspace.options);
  const detail = `${usable.join(', ')}; default ${provider}/${id}`;
  return {
    status: 'ok',
    detail: keys.length === 0 ? detail : `${detail}; keys: ${keys.join('; ')}`,
  };
}

const DATABASES = ['registry', 'ledger', 'index'] as const;
const NAMES = {
  registry: 'registry of threads',
  ledger: 'budget ledger',
  index: 'search index',
} as const;

function checkDatabase(workspace: Workspace, wanted: (typeof DATABASES)[number]): Finding {
  const found = workspace.store.maintenance?.inspect().find(({ name }) => name === wanted);
  if (!found || found.state === 'missing') return { status: 'ok', detail: 'not made yet' };
  const { path, state, detail } = found;
  if (state === 'ok') return { status: 'ok', detail: path };
  return {
    status: 'fail',
    detail: `${path}: ${detail}`,
    ...(state === 'damaged' ? { hint: 'Run: rye doctor --repair' } : {}),
  };
}

function checkState(workspace: Workspace): Finding {
  const state = join(workspace.options.projectPath, '.ai', 'state');
  if (!existsSync(state)) return { status: 'ok', detail: 'nothing has run here yet' };
  accessSync(state, constants.W_OK);
  return { status: 'ok', detail: state };
}

async function checkThreads(workspace: Workspace): Promise<Finding> {
  const files = threadFiles(workspace);
  const isMade = workspace.isRegistryMade;
  // a look makes no registry
  const unlisted = isMade ? await unlistedThreads({ files, store: workspace.store }) : files.list();
  if (unlisted.length > 0) {
    const shown = unlisted.slice(0, MAX_SHOWN).join(', ');
    return {
      status: 'fail',
      detail: `${unlisted.length} on disk that the registry does not list: ${shown}`,
      hint: 'Run: rye doctor --repair',
    };
  }
  if (!isMade) return { status: 'ok', detail: 'none' };
  const active = await workspace.store.registry.list({ active: true });
  const { owners } = workspace.store;
  const dead = active.filter((record) => {
    const owner = owners.ofRecord(record);
    return isActive(record.status) && owner !== undefined && owners.state(owner) === 'gone';
  });
  if (dead.length === 0) return { status: 'ok', detail: `${active.length} active` };
  return {
    status: 'warn',
    detail: `${dead.map(({ thread_id }) => thread_id).join(', ')}: crashed`,
    hint: 'Clean up with: rye threads recover',
  };
}

/** Reports what the copies for undos take. */
function checkCopies(workspace: Workspace): Finding {
  const files = threadFiles(workspace);
  const { copies } = files;
  const sizes = files.list().flatMap((id) => copies.list(id).map(({ bytes }) => bytes));
  if (sizes.length === 0)
    return {
      status: 'ok',
      detail: 'none (rye keeps copies of the files that tools change, for undo)',
    };
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  const megabytes = (bytes / 1_000_000).toFixed(1);
  return {
    status: 'ok',
    detail: `${sizes.length} copies of files that tools changed, for undo: ${megabytes} MB`,
    ...(bytes > MANY_COPIES ? { hint: 'Remove copies of old threads: rye threads gc' } : {}),
  };
}

/** Bytes of copies that are worth a hint. */
const MANY_COPIES = 1_000_000_000;

/** Names the plug-ins, and what each of them brings. */
async function checkPlugins(workspace: Workspace): Promise<Finding> {
  const plugins = (await pluginsOf(workspace)).map(({ name, commands = [], ...members }) => {
    const words = commands.map((command) => `rye ${command.name}`);
    return `${name} (${[...words, ...Object.keys(members)].join(', ')})`;
  });
  return { status: 'ok', detail: plugins.length === 0 ? 'none' : plugins.join('; ') };
}

/** Reports whether a program starts. */
export function checkProgram(program: string, consequence: string): Finding {
  const { error, stdout, stderr, status } = spawnSync(program, ['--version'], {
    encoding: 'utf8',
    timeout: 5000,
  });
  if (error) return { status: 'warn', detail: `${program} not found; ${consequence}` };
  const [first = ''] = (stdout.trim() || stderr.trim()).split('\n', 1);
  if (status !== 0) {
    const why = status === null ? 'was ended' : `exits with ${status}`;
    const detail = `${program} --version ${why}${first === '' ? '' : ` (${first})`}; ${consequence}`;
    return { status: 'warn', detail };
  }
  return { status: 'ok', detail: first === '' ? program : first };
}

/** Names the first of several items. */
function some(ids: readonly string[]): string {
  return ids.length > 5
    ? `${ids.slice(0, 5).join(', ')} and ${ids.length - 5} more`
    : ids.join(', ');
}

/** Reports the sandbox setting, and tries to confine a command on this machine. */
export async function checkSandbox(workspace: Workspace): Promise<Finding> {
  const { settings } = await readThreadConfig(await workspace.config());
  const { mode = 'off', allow_domains: hosts = [] } = settings.sandbox ?? {};
  const { projectPath, env } = workspace.options;
  const { available, detail } = await sandboxState({
    mode,
    allowDomains: hosts,
    projectPath,
    programPath: workspace.systemPath,
    env,
  });
  await closeSandbox();
  const here = available ? `${detail} works here` : `not available here: ${detail}`;
  if (mode === 'off') {
    return {
      status: 'ok',
      detail: `off (commands run with your permissions); ${here}`,
      ...(available ? { hint: 'To enable it, set tools.sandbox: auto in resilience.yaml.' } : {}),
    };
  }
  const none = mode === 'auto' ? 'network of tools that declare it' : 'no network';
  const network = hosts.length === 0 ? none : `network: ${hosts.join(', ')}`;
  if (available) return { status: 'ok', detail: `${mode}: ${detail}, ${network}` };
  const consequence =
    mode === 'auto' ? 'commands run without one' : 'bash and item tools are refused';
  return {
    status: mode === 'auto' ? 'warn' : 'fail',
    detail: `${mode}, but ${here}; ${consequence}`,
    hint: 'On Linux, install bubblewrap (with tools.allow_domains also socat and ripgrep), and allow unprivileged user namespaces.',
  };
}

/** Names the project's directives that hold private data, untrusted content and an outward channel at once. */
export async function checkTaint(workspace: Workspace): Promise<Finding> {
  const config = await readThreadConfig(await workspace.config());
  const { items, tools } = await threadPorts(workspace, { allowUnsigned: false });
  const directives = workspace.spaces.list('directive', { space: workspace.spaces.own });
  const tainted: string[] = [];
  const unread: string[] = [];
  for (const { id } of directives) {
    try {
      const { composed } = await resolveDirective(items, config, { directiveId: id, inputs: {} });
      const capabilities = planCapabilities(composed, undefined);
      const { warnings } = await tools.granted(capabilities, {
        preloadTokens: 0,
        mayConnect: false,
      });
      if (warnings.some(isTaintNote)) tainted.push(id);
    } catch (error) {
      // what no signature could heal leaks nothing
      if (toRyeError(error).exitCode === EXIT.integrity) unread.push(id);
    }
  }
  const unchecked =
    unread.length === 0
      ? ''
      : `; not checked, because not signed by a trusted key: ${some(unread)}`;
  if (tainted.length === 0)
    return {
      status: unread.length === 0 ? 'ok' : 'warn',
      detail: `no directive combines private data, untrusted input and network access${unchecked}`,
    };
  return {
    status: 'warn',
    detail: `${tainted.join(', ')}: private data, untrusted content and an outward channel in one thread${unchecked}`,
    hint: 'See why with: rye run DIRECTIVE --dry-run. Split the work over children that hold less.',
  };
}
