import { realpathSync } from 'node:fs';
import { capabilityOf, RISKS } from '../core/capability.ts';
import { featureMissing, isSecurityWarning, RyeError, toRyeError } from '../core/errors.ts';
import { aliasOf, serverOfTool } from '../core/ids.ts';
import type { ThreadPlan } from '../core/plan.ts';
import type { HandlerLists } from '../hooks/handlers.ts';
import { assertIdentity } from '../items/binding.ts';
import { readToolFiles, readToolMetadata } from '../items/tool-metadata-fs.ts';
import type { VerifiedItems } from '../items/verified-fs.ts';
import { parseBehavior } from '../loop/behavior.ts';
import { covers, coversTool, expandsTo, isExact } from '../policy/capability.ts';
import { assessRisks, type RiskTable, taintNote } from '../policy/risk.ts';
import type {
  OpenTools,
  ThreadEnv,
  ToolGrants,
  ToolPlanFacts,
  ToolSession,
  ToolSource,
} from '../threads/ports.ts';
import { createAskTool } from '../tools/ask/ask-tool.ts';
import { createPresentPlanTool } from '../tools/ask/present-plan.ts';
import { createBuiltinTools } from '../tools/builtin/builtin-tools.ts';
import { FileMemory } from '../tools/builtin/options.ts';
import { checkOutputs } from '../tools/directive-return.ts';
import { chooseDisclosure, TOOL_SEARCH_ID } from '../tools/disclosure.ts';
import { createItemTool } from '../tools/item/item-tool.ts';
import {
  createOrchestratorTool,
  createSendMessageTool,
  type OrchestratorActions,
  type SendMessage,
} from '../tools/orchestrator/orchestrator.ts';
import { createExecuteTool, createFetchTool, createSignTool } from '../tools/primary/actions.ts';
import { validateInput } from '../tools/schema.ts';
import { withoutSecrets } from '../tools/secrets.ts';
import { SKILLS_RUN_ID, SKILLS_USE_ID } from '../tools/skill-needs.ts';
import type { Tool } from '../tools/tool.ts';
import type { McpServerOptions } from './api/mcp.ts';
import {
  type GrantedSkills,
  NO_SKILLS,
  type SkillSession,
  type SkillSessionOptions,
  type SkillSource,
  type ThreadParts,
  type ToolServers,
} from './feature.ts';
import {
  assertDistinct,
  candidate,
  deferredEager,
  factsOf,
  type GrantedItems,
  idleGrants,
  idleWarning,
  isOffered,
  isPrimary,
  liftsGuard,
  lostServers,
  type OfferedTools,
  overriddenFiles,
  skippedTool,
  withoutCollisions,
} from './granted-tools.ts';
import { messageSender, orchestratorActions } from './orchestrator.ts';
import { libraryTools } from './presets.ts';
import { primaryActions, readerOf } from './primary-actions.ts';
import {
  absolutePaths,
  artifactsOf,
  builtinSettings,
  reachableDomains,
  readDenier,
  SessionTools,
  type ToolScope,
  threadSandbox,
} from './session-tools.ts';
import { readThreadConfig } from './settings.ts';
import { listSkills } from './skill-listing.ts';
import type { ProgramSkill, Workspace } from './workspace.ts';

export interface ToolsOptions {
  readonly allowUnsigned: boolean;
  /** Tools of the program that rye is a part of. */
  readonly own?: readonly Tool[];
  /** MCP servers and skills of that program; default: those that rye was opened with. */
  readonly mcpServers?: Readonly<Record<string, McpServerOptions>>;
  readonly skills?: readonly ProgramSkill[];
  /** Functions of that program; absent: none decide about skills. */
  readonly handlers?: () => HandlerLists;
  /** The environment of threads; absent for tools that run outside any thread. */
  readonly threads?: () => ThreadEnv;
}

const NO_SERVERS: OfferedTools = {
  tools: [],
  lazy: new Set(),
  warnings: [],
  servers: new Map(),
};

/** The tools of threads: built-in ones, item tools of the spaces, and the primary actions. */
export class ToolCatalog implements ToolSource {
  readonly #workspace: Workspace;
  readonly #options: ToolsOptions;
  readonly #parts: ThreadParts;
  readonly #servers: ToolServers | undefined;
  readonly #skillSource: SkillSource | undefined;

  constructor(workspace: Workspace, parts: ThreadParts, options: ToolsOptions) {
    this.#workspace = workspace;
    this.#options = options;
    this.#parts = parts;
    this.#servers = parts.servers?.(workspace, options);
    this.#skillSource = parts.skills?.(workspace, options);
  }

  async granted(
    capabilities: readonly string[],
    { preloadTokens, mayConnect }: ToolPlanFacts,
  ): Promise<ToolGrants> {
    const fixed = this.#fixedTools(undefined).filter(({ id }) => isOffered(id, capabilities));
    const { items, warnings, broken } = await this.#grantedItems(capabilities, fixed);
    const remote = (await this.#servers?.granted(capabilities, mayConnect)) ?? NO_SERVERS;
    const skills = await this.#skills(capabilities);
    const skillTools = this.#openSkills(skills, { planned: () => [], unlocked: new Set() }).tools;
    const { kept: candidates, warnings: collisions } = withoutCollisions([
      ...fixed.map((tool) => candidate(tool, capabilities, factsOf(tool, this.#options.own))),
      ...[...items, ...remote.tools].map((tool) => ({
        ...candidate(tool, capabilities, { declaredRisk: tool.traits.risk, builtin: false }),
        isEager: serverOfTool(tool.id) !== undefined && !remote.lazy.has(tool.id),
      })),
      ...skillTools.map((tool) => ({
        ...candidate(tool, capabilities, {
          declaredRisk: tool.id === SKILLS_RUN_ID ? 'elevated' : 'safe',
          builtin: false,
        }),
        pinned: true,
      })),
    ]);
    assertDistinct(candidates.map(({ tool }) => tool));
    const { preloaded } = chooseDisclosure(
      Number.isFinite(preloadTokens)
        ? candidates.filter(({ tool }) => !remote.lazy.has(tool.id))
        : candidates,
      preloadTokens,
    );
    const idle = idleGrants(capabilities, [...fixed, ...items, ...broken], () => [
      ...this.#fixedTools(undefined),
      ...this.#workspace.spaces.list('tool'),
    ]);
    const lost = lostServers(capabilities, remote, {
      mayConnect,
      ignored: (server) => this.#servers?.ignored(server),
    });
    const upFront = new Set(preloaded.map(({ id }) => id));
    const taint = taintNote(
      [...fixed.filter(({ id }) => !isPrimary(id)), ...items, ...remote.tools].map(
        ({ id, traits: { network } }) => ({ id, network }),
      ),
      capabilities,
    );
    return {
      tools: candidates.map(({ tool }) => ({ ...tool, preloaded: upFront.has(tool.id) })),
      warnings: [
        ...warnings,
        ...overriddenFiles(this.#workspace.spaces, fixed),
        ...idle.map(idleWarning),
        ...remote.warnings,
        ...lost.filter(({ error }) => !remote.warnings.includes(error.message)).map(idleWarning),
        ...collisions,
        ...deferredEager(candidates, upFront),
        ...skills.warnings,
        ...(taint === undefined ? [] : [taint]),
      ],
      unavailable: [...broken, ...idle, ...lost, ...skills.unavailable],
    };
  }

  async open(session: ToolSession): Promise<OpenTools> {
    const { plan, traits, secrets, children, record, keep } = session;
    const { capabilities, settings } = plan;
    const behavior = parseBehavior(plan.behavior);
    const config = await readThreadConfig(await this.#workspace.config());
    const scope: ToolScope = {
      secrets,
      children,
      keep,
      capabilities,
      allowPaths: settings.allow_paths,
      denies: readDenier(this.#workspace, settings),
      sandbox: threadSandbox(this.#workspace, settings, { workPath: plan.work_path, capabilities }),
      artifacts: artifactsOf(this.#workspace, session),
      ...reachableDomains(settings),
      admit: lateRiskCheck(plan, config.risks),
      // explicit steps use the text of each read, so a second one must not answer with a stub
      ...(traits.needsTools ? {} : { memory: new FileMemory(behavior) }),
      builtin: builtinSettings(behavior, plan.settings, traits),
    };
    const { toolSearch = null } = this.#workspace.options;
    const servers = this.#servers?.at(plan.work_path);
    const unlocked = new Set<string>();
    const granted = plan.tools.some(({ id }) => id === SKILLS_USE_ID)
      ? await this.#skills(capabilities)
      : NO_SKILLS;
    const { listed, catalog } = await listSkills(granted, {
      handlers: this.#options.handlers?.() ?? {},
      threadId: session.threadId,
      record,
    });
    const skills = this.#openSkills(granted, {
      planned: () => offered.planned,
      unlocked,
      listed,
      scope,
      onActivated: (payload) => record?.([{ event_type: 'skill_activated', payload }]),
    });
    const fixed = [...this.#fixedTools(scope), ...skills.tools];
    const fixedIds = new Set(fixed.map(({ id }) => id));
    const items = plan.tools.filter(
      ({ id }) => !fixedIds.has(id) && serverOfTool(id) === undefined,
    );
    const result = { outputs: plan.outputs, schema: behavior.schema };
    const offered = new SessionTools({
      plan,
      result,
      aliases: behavior.toolAliases,
      unlocked,
      search: libraryTools({ tools: { [TOOL_SEARCH_ID]: toolSearch } })[0],
      own: [
        ...fixed,
        ...(await Promise.all(items.map(async ({ id }) => await this.#itemTool(id, scope)))),
      ],
      remote: (tool) => {
        if (servers === undefined) throw featureMissing('mcp');
        return withoutSecrets(servers.planned(tool), this.#secrets(scope));
      },
      loadTool: async (id) => await this.#findItemTool(id, scope),
    });
    const remote = servers?.attach({ offered, plan, traits, config, record });
    return {
      set: offered.set,
      skills: skills.host,
      definitions: () => offered.definitions(),
      catalog: () => [catalog, offered.catalog()].filter((part) => part !== '').join('\n\n'),
      tool: async (id) => offered.tool(id) ?? (await this.#itemTool(id, scope)),
      validate: validateInput,
      checkReturn: (input) => checkOutputs(result, input),
      forgetReads: () => scope.memory?.clear(),
      restore: (messages) => {
        skills.restore(messages);
        offered.restore(messages);
      },
      withdrawn: () => offered.withdrawnNames(),
      gates: [({ tool }) => skills.refusal(tool.id), ({ tool }) => offered.refusal(tool.id)],
      close: async () => undefined,
      ...remote,
    };
  }

  /** Tools that are there without any file. */
  builtin(): readonly Tool[] {
    return this.#fixedTools(undefined);
  }

  /** One item tool by id, for `rye execute tool`. */
  async load(
    id: string,
    scope: ToolScope,
  ): Promise<{ readonly tool: Tool; readonly builtin: boolean }> {
    if (serverOfTool(id) !== undefined) {
      if (this.#servers === undefined) throw featureMissing('mcp');
      const tool = withoutSecrets(await this.#servers.find(id), this.#secrets(scope));
      return { tool, builtin: false };
    }
    const alias = this.#workspace.spaces.find('tool', id) ? undefined : aliasOf('tool', id);
    const tools = this.#fixedTools(scope);
    const fixed = tools.find((tool) => tool.id === id || tool.id === alias);
    const others = tools.map((tool) => tool.id);
    return fixed
      ? { tool: fixed, builtin: this.#options.own?.some((one) => one.id === fixed.id) !== true }
      : { tool: await this.#itemTool(id, scope, others), builtin: false };
  }

  /** Tools that every thread's set knows. */
  #fixedTools(scope: ToolScope | undefined): readonly Tool[] {
    const { env, projectPath } = this.#workspace.options;
    const actions = primaryActions(this.#workspace, scope);
    const secrets = this.#secrets(scope);
    return [
      createExecuteTool(actions),
      createFetchTool(actions),
      createSignTool(actions),
      ...createBuiltinTools({
        env,
        allowedPaths: absolutePaths(scope?.allowPaths ?? [], projectPath),
        denies: scope?.denies,
        sandbox: scope?.sandbox,
        keep: scope?.keep,
        artifacts: scope?.artifacts,
        lifts: liftsGuard(scope?.capabilities ?? []),
        ...(scope?.memory ? { memory: scope.memory } : {}),
        ...scope?.builtin,
      }),
      createAskTool(),
      createPresentPlanTool(),
      ...(this.#parts.tools?.(this.#workspace, readerOf(this.#workspace, scope)) ?? []),
      createOrchestratorTool(() => this.#orchestrator(scope)),
      createSendMessageTool(async (call, context) => await this.#sender(scope)(call, context)),
      ...(this.#options.own ?? []),
    ].map((tool) => withoutSecrets(tool, secrets));
  }

  #orchestrator(scope: ToolScope | undefined): OrchestratorActions {
    const env = this.#options.threads?.();
    if (env && scope) return orchestratorActions({ env, children: scope.children });
    throw new RyeError('usage', 'this tool works only in a running thread', {
      hint: 'At the command line: rye threads --help',
    });
  }

  #sender(scope: ToolScope | undefined): SendMessage {
    const env = this.#options.threads?.();
    if (env && scope) return messageSender(env);
    throw new RyeError('usage', 'no thread is running that could send a message', {
      hint: 'At the command line: rye threads steer --help',
    });
  }

  /** Item tools that the capabilities name or match, and the broken ones that they name. */
  async #grantedItems(
    capabilities: readonly string[],
    fixed: readonly Tool[],
  ): Promise<GrantedItems> {
    const known = this.#workspace.spaces
      .list('tool')
      .filter(({ shadowedBy }) => shadowedBy === null);
    const ids = expandsTo(
      capabilities,
      'execute',
      'tool',
      known.map(({ id }) => id),
    ).filter((id) => !fixed.some((tool) => tool.id === id) && serverOfTool(id) === undefined);
    const tools: Tool[] = [];
    const warnings: string[] = [];
    const broken: GrantedItems['broken'][number][] = [];
    for (const id of ids) {
      try {
        tools.push(await this.#itemTool(id, undefined));
      } catch (thrown) {
        const error = toRyeError(thrown);
        const capability = capabilities.find((one) => isExact(one) && coversTool([one], id));
        if (capability !== undefined) broken.push({ id, capability, error });
        const warning = skippedTool(id, error);
        if (isSecurityWarning(warning)) this.#workspace.notice(warning);
        warnings.push(warning);
      }
    }
    return { items: tools, warnings, broken };
  }

  async #skills(capabilities: readonly string[]): Promise<GrantedSkills> {
    return (await this.#skillSource?.granted(capabilities)) ?? NO_SKILLS;
  }

  #openSkills(
    granted: GrantedSkills,
    {
      scope,
      ...session
    }: Omit<SkillSessionOptions, 'scripts' | 'denies'> & { readonly scope?: ToolScope },
  ): SkillSession {
    const scripts = { env: this.#workspace.options.env, sandbox: scope?.sandbox };
    const project = realpathSync(this.#workspace.options.projectPath);
    const denies = (real: string): boolean => scope?.denies(real, project) === true;
    const opened = granted.open({ ...session, scripts, denies });
    const secrets = this.#secrets(scope);
    return { ...opened, tools: opened.tools.map((tool) => withoutSecrets(tool, secrets)) };
  }

  async #findItemTool(id: string, scope: ToolScope): Promise<Tool | undefined> {
    try {
      return await this.#itemTool(id, scope);
    } catch (error) {
      if (
        error instanceof RyeError &&
        (error.code === 'item_not_found' || error.code === 'invalid_item_id')
      )
        return undefined;
      throw error;
    }
  }

  async #itemTool(
    id: string,
    scope: ToolScope | undefined,
    others: readonly string[] = [],
  ): Promise<Tool> {
    const items = await this.#workspace.items(this.#options.allowUnsigned);
    const { env } = this.#workspace.options;
    const tool = await readItemTool(items, id, { env, scope, others });
    return withoutSecrets(tool, this.#secrets(scope));
  }

  /** Secrets that must not leave a call: the thread's secret inputs and rye's own secrets. */
  #secrets(scope: ToolScope | undefined): readonly string[] {
    const inputs = Object.values(scope?.secrets ?? {}).filter((value) => value !== '');
    // frozen, so that their spellings are made once
    return Object.freeze([...inputs, ...this.#workspace.secrets()]);
  }
}

/**
 * Judges a tool when it is loaded while the thread runs. The plan judged what was there then; a tool that was added,
 * or that declares more since, needs what it would have needed then. Throws `acknowledge_required` or `risk_blocked`.
 */
function lateRiskCheck(
  {
    acknowledged,
    capabilities,
    tools,
  }: Pick<ThreadPlan, 'acknowledged' | 'capabilities' | 'tools'>,
  table: RiskTable,
): (tool: Tool) => void {
  const refusalOf = (capability: string, { id, traits }: Tool): RyeError | undefined =>
    assessRisks({
      capabilities: [capability],
      table,
      acknowledged,
      toolRisks: new Map([[id, traits.risk]]),
    }).refusals[0];
  return (tool) => {
    const need = { verb: 'execute', item_type: 'tool', item_id: tool.id } as const;
    const refusal = refusalOf(capabilityOf(need), tool);
    if (refusal) throw refusal;
    const planned = tools.find(({ id }) => id === tool.id);
    const declared = tool.traits.risk ?? 'elevated';
    // the plan judged its wildcards by this tool, which declares no more now
    if (planned && RISKS.indexOf(declared) <= RISKS.indexOf(planned.risk)) return;
    // the plan may have judged a wildcard by the program's own tools alone: a file that it reaches too needs more
    const refused = capabilities
      .filter((grant) => covers([grant], need))
      .map((grant) => refusalOf(grant, tool));
    const [first] = refused;
    if (first && refused.every((one) => one !== undefined)) throw first;
  };
}

/** Reads a tool of the spaces and checks it. `others` are IDs that an error may suggest. */
async function readItemTool(
  items: VerifiedItems,
  id: string,
  options: {
    readonly env: NodeJS.ProcessEnv;
    readonly scope: ToolScope | undefined;
    readonly others: readonly string[];
  },
): Promise<Tool> {
  const { env, scope, others } = options;
  const item = items.load('tool', id, 'execute', others);
  const metadata = await readToolMetadata(item.text, item.path);
  assertIdentity({ type: 'tool', id, path: item.path }, { category: metadata.category });
  if (metadata.unsupported) throw metadata.unsupported;
  const tool = createItemTool(
    {
      id,
      path: item.path,
      kind: metadata.kind,
      description: metadata.description,
      inputSchema: metadata.inputSchema,
      traits: metadata.traits,
      env: metadata.env,
      content: item.bytes,
      sha256: item.sha256,
      files: readToolFiles(item.path, metadata.files ?? {}),
      ...(metadata.command ? { command: metadata.command } : {}),
      ...(metadata.runtime ? { runtime: metadata.runtime } : {}),
    },
    {
      env,
      sandbox: scope?.sandbox,
      ...(scope?.allowDomains ? { allowDomains: scope.allowDomains } : {}),
      resolveSecret: (name) => scope?.secrets[name],
    },
  );
  scope?.admit?.(tool);
  return tool;
}
