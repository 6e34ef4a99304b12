import { uptime } from 'node:os';
import { featureMissing } from '../core/errors.ts';
import { renderCapabilities } from '../export/capabilities.ts';
import { renderLiveHead, renderThreadKnowledge } from '../export/knowledge.ts';
import { renderEvent } from '../export/markdown.ts';
import {
  type AddedHandlers,
  composeHandlers,
  currentHandlers,
  decidingNames,
} from '../hooks/handlers.ts';
import { parseBehavior } from '../loop/behavior.ts';
import { withAliases } from '../providers/aliases.ts';
import type { ModelSource, ThreadEnv, ThreadPorts } from '../threads/ports.ts';
import type { Worktrees } from '../threads/worktrees.ts';
import { needOfCall } from '../tools/call-need.ts';
import { compileGlob } from '../tools/glob-pattern.ts';
import { killGuard } from '../tools/kill-guard.ts';
import { RestoredFiles } from '../tools/restored-files.ts';
import { compileSchema } from '../tools/schema.ts';
import type { Tool } from '../tools/tool.ts';
import { addedPreset, type ThreadParts, threadParts } from './feature.ts';
import { liftsGuard } from './granted-tools.ts';
import { projectGuards } from './guards.ts';
import { lazy } from './lazy.ts';
import { type Models, modelsOf } from './models.ts';
import { libraryTools, type Preset, presetHandlers, presetServers } from './presets.ts';
import { loadDefined } from './program/directives.ts';
import { runnerCommand } from './runner-command.ts';
import { absolutePaths } from './session-tools.ts';
import { readThreadConfig } from './settings.ts';
import { readySigner } from './signing-key.ts';
import { assertOwnState, claimedParts, ThreadHeads } from './thread-files.ts';
import { ToolCatalog } from './tools.ts';
import { type ProgramSkill, skillsOf, type Workspace } from './workspace.ts';

/** Returns what tells when this process or its machine stopped. */
function lifeOf(clock: Workspace['clock']): Pick<ThreadPorts, 'deathMarks' | 'bootedMs'> {
  return { deathMarks: killGuard, bootedMs: () => clock.now() - uptime() * 1000 };
}

export interface ThreadEnvOptions {
  readonly allowUnsigned: boolean;
  readonly replayFrom?: string | undefined;
  /** Options from the embedding program; default: those that rye was opened with. */
  readonly preset?: Preset | undefined;
  /** Handlers that are added to the run while it is in progress. */
  readonly added?: AddedHandlers | undefined;
}

/** Builds everything that a thread needs to be prepared and run; reads and validates the configuration. */
export async function threadEnv(base: Workspace, options: ThreadEnvOptions): Promise<ThreadEnv> {
  const parts = await threadParts(base);
  await base.warming;
  const ports = connect(base, parts, { ...options, plugins: await addedPreset(base) }, () => env);
  const env: ThreadEnv = { ...ports, config: await readConfig(base, ports) };
  return env;
}

/** If the configuration is invalid because a guard was changed, reports the changed guard. */
async function readConfig(base: Workspace, { guards }: ThreadPorts): Promise<ThreadEnv['config']> {
  try {
    return await base.readConfig(readThreadConfig);
  } catch (error) {
    await guards.check();
    throw error;
  }
}

/** Builds what operations on stored threads need. Works even if the configuration is invalid. */
export async function threadPorts(
  base: Workspace,
  options: ThreadEnvOptions,
): Promise<ThreadPorts> {
  return connect(base, await threadParts(base), options);
}

/** The one place that names every adapter of threads. `threads` is what orchestrating tools act on. */
function connect(
  base: Workspace,
  parts: ThreadParts,
  options: ThreadEnvOptions & { readonly plugins?: Preset },
  threads?: () => ThreadEnv,
): ThreadPorts {
  const { projectPath, env } = base.options;
  assertOwnState(projectPath);
  const { clock, keyring, store } = base;
  const { preset = base.preset, plugins = {} } = options;
  const own = libraryTools(preset);
  const skills = preset === base.preset ? base.programSkills : skillsOf(preset);
  const defined = base.directives(preset);
  const added = options.added ? [base.added, options.added] : [base.added];
  const handlers = composeHandlers(plugins.handlers ?? {}, presetHandlers(preset));
  const handlersNow = currentHandlers(handlers, added);
  const tools = new ToolCatalog(base, parts, {
    ...options,
    handlers: handlersNow,
    own: [...libraryTools(plugins), ...own],
    mcpServers: presetServers(preset),
    skills,
    ...(threads ? { threads } : {}),
  });
  const models = modelsOf(base, options.replayFrom);
  return {
    projectPath,
    clock,
    ids: base.ids,
    random: Math.random,
    owner: store.owners.self(),
    ...lifeOf(clock),
    ...claimedParts(base),
    signer: () => keyring.payloadSigner(),
    readySigner: async (facts) => await readySigner(base, facts),
    verifier: keyring.payloadVerifier,
    items: {
      load: async (type, id, operation) => {
        const directive = type === 'directive' ? defined.get(id) : undefined;
        if (directive) return loadDefined(directive);
        const items = await base.items(options.allowUnsigned);
        const item = items.load(type, id, operation);
        const { verdict } = item;
        const signer = verdict.ok && verdict.by === 'key' ? { key_id: verdict.keyId } : {};
        return { ...item, type, ...signer };
      },
    },
    rules: parts.rules?.(base, options) ?? withoutRules(base),
    approvals: parts.approvals?.(base).env ?? withoutApprovals(base.keyring),
    guards: projectGuards(base, options.allowUnsigned || env['RYE_DEV_MODE'] === '1'),
    models: aliasedModels(models),
    tools,
    heads: new ThreadHeads(base),
    filesOf: restoredFiles(projectPath),
    worktrees: parts.worktrees?.({ projectPath, env }) ?? withoutWorktrees(),
    renderer: {
      capabilities: renderCapabilities,
      knowledge: renderThreadKnowledge,
      liveHead: renderLiveHead,
      entry: renderEvent,
    },
    isRevoked: (keyId) => keyring.find(keyId).status === 'revoked',
    parentFromEnvironment: env['RYE_PARENT_THREAD_ID'],
    environment: env,
    fileExists: base.fileExists,
    isShipped: base.isShipped,
    onNotice: base.notice,
    handlers: handlersNow,
    program: programParts(base, { preset, added, skills }, own, defined),
    fleet: base.fleet,
    runner: async () => await runnerCommand(base, models),
    checkSchema: async (schema) => void (await compileSchema(schema)),
    indexExport: async (path) => await parts.search?.(base).index(path),
  };
}

/** Names what a process needs to resume a thread of this program. Plug-ins are loaded again wherever that is. */
function programParts(
  base: Workspace,
  {
    preset,
    added,
    skills,
  }: {
    readonly preset: Preset;
    readonly added: readonly AddedHandlers[];
    readonly skills: readonly ProgramSkill[];
  },
  tools: readonly Tool[],
  directives: ReadonlyMap<string, unknown>,
): ThreadPorts['program'] {
  const current = currentHandlers(presetHandlers(preset), added);
  return {
    get handlers() {
      return decidingNames(current());
    },
    tools: tools.map(({ id }) => id),
    directives: [...directives.keys()],
    mcp_servers: Object.keys(presetServers(preset)),
    skills: skills.map(({ id }) => id),
    travels: base.options.program !== undefined,
  };
}

/** Opens files for an undo, under the rules of the file tools of the thread that changed them. */
function restoredFiles(projectPath: string): ThreadPorts['filesOf'] {
  return async ({ capabilities, settings }, threadId) =>
    new RestoredFiles({
      projectPath,
      allow: absolutePaths(settings.allow_paths, projectPath),
      threadId,
      lifts: liftsGuard(capabilities),
    });
}

/** Returns the models of threads, which may rename tools. */
function aliasedModels(models: Models): ModelSource {
  return {
    resolve: async (facts) => await models.resolve(facts),
    stepProvider: () => models.stepProvider(),
    traits: (model) => models.traits(model),
    about: models.about,
    renewKey: models.renewKey,
    outputRate: async (model) => await models.outputRate(model),
    assertReady: models.assertReady,
    open: (model, plan) =>
      withAliases(models.open(model, plan), parseBehavior(plan.behavior).toolAliases),
  };
}

/** Refuses to run where the project or the user has rules: what they would stop must not run unwatched. */
function withoutRules({ spaces }: Workspace): ThreadPorts['rules'] {
  return {
    async plan() {
      const own = spaces.list('rule').filter(({ space }) => space !== 'system');
      if (own.length > 0) throw featureMissing('rules');
      return undefined;
    },
    watch: ({ rules }) => {
      if (rules !== undefined && rules.stream.length > 0) throw featureMissing('rules');
      return {};
    },
  };
}

/** Refuses every demand for a decision. `projectGuards` has refused the project's policies already. */
function withoutApprovals(keys: Workspace['keyring']): ThreadPorts['approvals'] {
  return {
    policies: async () => [],
    keys,
    glob: compileGlob,
    needOf: needOfCall,
    judge: noApprovals,
    describe: noApprovals,
    notify: noApprovals,
  };
}

async function noApprovals(): Promise<never> {
  throw featureMissing('approvals');
}

function withoutWorktrees(): Worktrees {
  return lazy<Worktrees>(
    async () => {
      throw featureMissing('worktrees');
    },
    { list: async () => [] },
  );
}
