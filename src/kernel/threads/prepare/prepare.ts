import { RyeError, toRyeError } from '../../core/errors.ts';
import { compact, type JsonObject, toText } from '../../core/json.ts';
import { threadLabel } from '../../core/label.ts';
import type { PartialLimits } from '../../core/limits.ts';
import type { ContextBlock, OutputDeclaration, PlanSource, ThreadPlan } from '../../core/plan.ts';
import type { ResultShape } from '../../core/return-schema.ts';
import { assertIdentity } from '../../items/binding.ts';
import type { Composed } from '../../items/extends.ts';
import { resolveInputs } from '../../items/inputs.ts';
import { parseKnowledge } from '../../items/knowledge.ts';
import { findFence } from '../../items/markdown.ts';
import { parseSchema, SchemaProblem, typeOfSchema } from '../../items/output-schema.ts';
import { displayInputs, interpolateText, processValues, renderPrompt } from '../../items/prompt.ts';
import { parseBehavior, unknownBehavior } from '../../loop/behavior.ts';
import { checkRaises, type GrantedLimits } from '../../policy/limit-grant.ts';
import { parseLimits, resolveLimits } from '../../policy/limits.ts';
import { type SharedLimits, shareSpend } from '../family/child-budget.ts';
import type {
  Configured,
  ItemSource,
  Preparation,
  Preparing,
  Process,
  Sources,
  Stored,
} from '../ports.ts';
import type { ThreadConfig } from '../thread-config.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { planPlace } from '../worktrees.ts';
import { loadContext } from './context.ts';
import {
  assertAliases,
  planBehavior,
  planHooks,
  type ResolvedDirective,
  resolveDirective,
  sourceOf,
} from './directive.ts';
import {
  assertAvailable,
  assertPriced,
  planAsks,
  planCapabilities,
  planRisks,
  planRules,
  programOf,
  renamedGrants,
} from './policy.ts';
import type { PrepareRequest } from './request.ts';

/** A plan and the secrets that travel beside it; a plan never holds secrets. */
export interface PreparedThread {
  readonly plan: ThreadPlan;
  readonly secrets: Readonly<Record<string, string>>;
  /** The parent's verified thread.json. */
  readonly parent: ThreadDocument | undefined;
}

/**
 * Reads and checks everything that decides how a directive will run, and changes nothing. A directive that can't run
 * fails here, before anything is registered, spent or written.
 */
export async function prepareThread(
  env: Preparing,
  request: PrepareRequest,
): Promise<PreparedThread> {
  const ignored = await env.guards.check();
  const parent = await loadParent(env, request.parentThreadId ?? env.parentFromEnvironment);
  return await planDirective(env, request, { ignored, parent, isStart: true });
}

/** Inputs of planning that are not part of the request. */
interface PlanFacts {
  /** Warnings of the guards. */
  readonly ignored: readonly string[];
  readonly parent: ThreadDocument | undefined;
  /** True if the thread is new: a child then shares what its parent has left. A later run asks the ledger for its part. */
  readonly isStart: boolean;
}

/** Plans a directive as its files are now, within the limits and capabilities of a parent. */
export async function planDirective(
  env: Preparing,
  request: PrepareRequest,
  facts: PlanFacts,
): Promise<PreparedThread> {
  const { ignored, parent } = facts;
  const { config } = env;
  const { directiveId, inputs = {} } = request;
  const resolved = await resolveDirective(env.items, config, { directiveId, inputs });
  const { composed } = resolved;
  const { values, secretNames } = resolveInputs(composed.inputs, inputs, env);
  const secrets = secretsOf(values, secretNames);

  const limits = await planSpend(env, request, composed, facts);
  const grants = await planGrants(env.items, request, composed, parent);
  const { capabilities } = grants;
  const models = await planModels(env, request, composed);
  const { model, fallbacks, origin: modelOrigin, unfit } = models;
  const granted = await grantedTools(env, request, capabilities, model);
  const risk = planRisks({
    table: config.risks,
    capabilities,
    declared: composed.acknowledgements,
    options: request.acknowledge ?? [],
    granted: granted.tools,
  });
  assertAvailable(granted.unavailable, grants.composed);
  // after the policy: a directive that may not run needs no key
  if (unfit && (request.isDryRun !== true || request.needsModel === true)) throw unfit;

  const context = await loadContext(env, composed);
  const rules = await planRules(env, { directive: request.directiveId, model, capabilities });
  const behavior = await planBehavior(env, config, { composed, given: behaviorOf(request) });
  assertAliases(behavior, risk.tools);
  const { outputs, sources: schemas } = await planOutputs(env, composed);
  const result = { outputs, schema: parseBehavior(behavior).schema };
  const text = interpolateDirective(env, composed, { values, secretNames, result });
  const hooks = await planHooks(env, resolved, capabilities);
  const plan: ThreadPlan = {
    format: 1,
    directive: { ...sourceOf(resolved.leaf), ...headline(composed) },
    chain: resolved.chain,
    context_sources: [...context.sources, ...schemas],
    parent_thread_id: parent?.thread_id ?? null,
    inputs: displayInputs(values, secretNames),
    secret_inputs: secretNames,
    outputs,
    prompt: text.prompt,
    body: text.body,
    context: [...context.blocks, ...rules.blocks, ...programBlocks(request)],
    suppress: composed.suppress,
    process: composed.steps,
    ...(Object.keys(text.values).length === 0 ? {} : { process_values: text.values }),
    ...limitsOfPlan(limits),
    ...grants.granted,
    acknowledged: risk.acknowledged,
    risks: risk.risks,
    hooks: hooks.hooks,
    tools: risk.tools,
    model,
    fallbacks,
    thinking: composed.model?.thinking ?? 'off',
    integrity: integrityOf([...resolved.chain, ...context.sources, ...schemas], request),
    allow_unpriced: request.allowUnpriced ?? false,
    continuation_directive: composed.continuationDirective ?? null,
    behavior,
    origins: planOrigins(resolved, inputs, limits.origins, modelOrigin),
    warnings: [
      ...ignored,
      ...warningsOf([composed, resolved, limits, granted, context]),
      ...warningsOf([text, rules, hooks, models, grants]),
      ...(await refusals(env, unfit, request)),
      ...unknownBehavior(behavior),
    ],
    settings: config.settings,
    ...(rules.rules ? { rules: rules.rules } : {}),
    ...(await requestedPlace(env, request, { parent, secrets })),
    ...programOf(env, { tools: risk.tools, chain: resolved.chain, capabilities }),
  };
  return { plan, secrets, parent };
}

/** The text of a program is the end of the system text, so that programs share the prefix that a provider caches. */
function programBlocks({ system }: PrepareRequest): readonly ContextBlock[] {
  if (!system) return [];
  return [{ position: 'system', id: 'program', source: 'program', content: system }];
}

function secretsOf(values: JsonObject, names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, toText(values[name] ?? null)]));
}

function warningsOf(parts: readonly { readonly warnings: readonly string[] }[]): readonly string[] {
  return parts.flatMap(({ warnings }) => warnings);
}

/** Returns the thread's capabilities, with a note for each grant on an id of Rye OS. */
async function planGrants(
  items: ItemSource,
  request: PrepareRequest,
  composed: Composed,
  parent: ThreadDocument | undefined,
): Promise<{
  readonly composed: Composed;
  readonly capabilities: readonly string[];
  /** The part of the plan. */
  readonly granted: Pick<ThreadPlan, 'capabilities' | 'asks'>;
  readonly warnings: readonly string[];
}> {
  const renamed = await renamedGrants(items, composed);
  const capabilities = planCapabilities(renamed.composed, parent, request);
  return {
    composed: renamed.composed,
    capabilities,
    granted: { capabilities, ...planAsks(renamed.composed, parent) },
    warnings: renamed.warnings,
  };
}

/** The tools that the capabilities grant; a dry run starts no server to list them. */
async function grantedTools(
  env: Configured & Pick<Sources, 'tools' | 'models'>,
  { isDryRun }: Pick<PrepareRequest, 'isDryRun'>,
  capabilities: readonly string[],
  model: ThreadPlan['model'],
) {
  return await env.tools.granted(capabilities, {
    preloadTokens: env.models.traits(model).embedded
      ? Number.POSITIVE_INFINITY
      : env.config.toolPreloadTokens,
    mayConnect: isDryRun !== true,
  });
}

/** The model that the options or the directive ask for, and what to fall back on; all of them priced. */
async function planModels(
  env: Pick<Sources, 'models'>,
  request: PrepareRequest,
  { model: choice, steps }: Composed,
) {
  const { model: wanted, provider, allowUnpriced = false } = request;
  const models = await env.models.resolve({
    wanted: wanted ?? choice?.id ?? choice?.tier,
    // a model named by an option is not bound to the directive's provider
    provider: provider ?? (wanted === undefined ? choice?.provider : undefined),
    fallback: choice?.fallback,
    ...(wanted === undefined && choice?.id !== undefined ? { tier: choice.tier } : {}),
    allowUnpriced,
    hasSteps: steps.length > 0,
  });
  assertPriced([models.model, ...models.fallbacks], allowUnpriced);
  return { ...models, warnings: models.warnings ?? [] };
}

function integrityOf(
  sources: readonly PlanSource[],
  { system = '' }: PrepareRequest,
): ThreadPlan['integrity'] {
  const isVerified = sources.every(({ integrity }) => integrity === 'verified');
  return isVerified && system === '' ? 'verified' : 'unverified';
}

/** A declared parent counts only with a valid signature; without one the child must not run. */
async function loadParent(
  env: Stored,
  threadId: string | undefined,
): Promise<ThreadDocument | undefined> {
  if (threadId === undefined || threadId === '') return undefined;
  const parent = await env.files.readDocument(threadId);
  const [row] = await env.store.ledger.rows({ thread_id: threadId });
  if (row?.status !== 'released') return parent;
  throw new RyeError('illegal_transition', `the parent ${threadId} has ended (${parent.status})`, {
    hint: `Start the thread without --parent, or resume the parent: rye threads resume ${threadId}`,
    details: { parent_thread_id: threadId, status: parent.status },
  });
}

function headline({ name, version, description, category }: Composed) {
  return { name, version, description, category };
}

function interpolateDirective(
  { environment, config }: Pick<Preparation, 'environment'> & Configured,
  composed: Composed,
  given: {
    readonly values: JsonObject;
    readonly secretNames: readonly string[];
    readonly result: ResultShape;
  },
) {
  const { values, secretNames, result } = given;
  const scope = { inputs: values, secretNames, env: environment, envAllow: config.envAllow };
  const body = interpolateText(composed.body, scope);
  const process = processValues(composed.steps, scope);
  const { name, description, permissionsXml } = composed;
  const missing = [...new Set([...body.missing, ...process.missing])];
  return {
    body: body.value,
    values: process.value,
    prompt: renderPrompt({
      name,
      description,
      permissionsXml,
      body: body.value,
      result,
      steps: composed.steps,
      values: process.value,
    }),
    warnings: missing.map((reference) => `${reference} has no value and stays as it is`),
  };
}

function planOrigins(
  resolved: ResolvedDirective,
  given: JsonObject,
  limitOrigins: Readonly<Record<string, string>>,
  modelOrigin: string,
): Record<string, string> {
  const { composed, hooks, routedBy } = resolved;
  const limits = Object.entries(limitOrigins).map(([name, origin]) => [`limits.${name}`, origin]);
  const inputs = composed.inputs
    .filter(({ name }) => given[name] !== undefined)
    .map(({ name }) => [`inputs.${name}`, 'given']);
  return {
    ...withoutHooks(composed.origins),
    ...Object.fromEntries([...limits, ...inputs]),
    ...Object.fromEntries(hooks.map(({ id, layer, origin }) => [`hooks.${layer}.${id}`, origin])),
    ...(routedBy === undefined ? {} : { extends: `hook ${routedBy}` }),
    model: modelOrigin,
  };
}

/** Drops the chain's hooks: the merged table lists them with their layer. */
function withoutHooks(origins: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(origins).filter(([path]) => !path.startsWith('hooks.')));
}

/** Why a run of the plan would be refused that a dry run only shows. */
async function refusals(
  env: Pick<Process, 'readySigner'>,
  unfit: RyeError | undefined,
  { isDryRun }: Pick<PrepareRequest, 'isDryRun'>,
): Promise<readonly string[]> {
  if (isDryRun !== true) return [];
  const found = unfit ? [unfit] : [];
  try {
    await env.readySigner({ isDryRun });
  } catch (error) {
    found.push(toRyeError(error));
  }
  return found.map(
    ({ message, hint }) =>
      `a run would be refused: ${message}${hint === undefined ? '' : `. ${hint}`}`,
  );
}

interface LimitFacts {
  readonly parent: ThreadDocument | undefined;
  /** True if the thread is new. */
  readonly isStart: boolean;
}

/** The limits of the thread; a child spends no more than its parent can spare. */
async function planSpend(
  env: Stored & Configured,
  request: PrepareRequest,
  composed: Composed,
  { parent, isStart }: LimitFacts,
): Promise<SharedLimits> {
  const { directiveId, limits: overrides = {}, raiseLimits: mayRaise = false } = request;
  const options = { overrides, parent, directiveId, mayRaise };
  const resolved = planLimits(env.config, composed, options);
  if (!isStart) return { ...resolved, warnings: [] };
  const declared = composed.rawLimits;
  return await shareSpend(env, resolved, { directiveId, parent, declared, overrides });
}

/** defaults → directive → overrides, capped by the parent's signed limits. */
function planLimits(
  config: ThreadConfig,
  composed: Composed,
  { overrides, parent, directiveId, mayRaise }: LimitOptions,
): GrantedLimits {
  const sources = {
    defaults: config.limitDefaults,
    directive: parseLimits(composed.rawLimits, 'the directive'),
  };
  const given = parseLimits(
    Object.entries(overrides).map(([name, value]) => ({ name, value })),
    'limit overrides',
  );
  if (parent) {
    const caps = { thread_id: parent.thread_id, limits: parent.limits };
    return resolveLimits({ ...sources, overrides: given, parent: caps });
  }
  const signed = resolveLimits({ ...sources, overrides: { limits: {}, origins: {} } });
  const resolved = resolveLimits({ ...sources, overrides: given });
  if (Object.keys(given.limits).length === 0) return resolved;
  const { limits: granted, origins } = signed;
  const wanted = given.limits;
  const ceiling = config.limitCeiling;
  const raised = checkRaises({ directiveId, granted, origins, wanted, ceiling, mayRaise });
  return { ...resolved, granted, ...(Object.keys(raised).length === 0 ? {} : { raised }) };
}

interface LimitOptions {
  readonly overrides: PartialLimits;
  readonly parent: ThreadDocument | undefined;
  readonly directiveId: string;
  /** True if the overrides may go above what is granted. */
  readonly mayRaise: boolean;
}

/** Returns the limits as a plan records them. */
function limitsOfPlan({
  limits,
  granted,
  raised,
}: GrantedLimits): Pick<ThreadPlan, 'limits' | 'granted_limits' | 'raised_limits'> {
  return { limits, ...compact({ granted_limits: granted, raised_limits: raised }) };
}

/** Returns the settings of the request, the place that it asks for and its label, without the values of `secrets`. */
async function requestedPlace(
  env: Preparing,
  request: PrepareRequest,
  {
    parent,
    secrets,
  }: {
    readonly parent: ThreadDocument | undefined;
    readonly secrets: Readonly<Record<string, string>>;
  },
): Promise<Pick<ThreadPlan, 'requested' | 'worktree' | 'work_path' | 'label'>> {
  const label = threadLabel(
    Object.values(secrets).reduce(
      (text, secret) => (secret === '' ? text : text.replaceAll(secret, '***')),
      request.label ?? '',
    ),
  );
  return {
    ...requestedOf(request),
    ...(await planPlace(env, request.isolation, parent)),
    ...(label === '' ? {} : { label }),
  };
}

/** The settings that a refresh of the plan applies again. */
function requestedOf(request: PrepareRequest): Pick<ThreadPlan, 'requested'> {
  const { model, provider, limits = {}, raiseLimits, onlyTools, hookCapabilities = [] } = request;
  const behavior = behaviorOf(request);
  const requested = compact({
    system: request.system,
    model,
    provider,
    limits: isEmpty(limits) ? undefined : limits,
    raise_limits: raiseLimits === true ? true : undefined,
    behavior: isEmpty(behavior) ? undefined : behavior,
    only_tools: onlyTools,
    hook_capabilities: hookCapabilities.length === 0 ? undefined : hookCapabilities,
  });
  return isEmpty(requested) ? {} : { requested };
}

function isEmpty(value: object): boolean {
  return Object.keys(value).length === 0;
}

/** Returns the behavior that a request asks for, with its schema of outputs. */
function behaviorOf({ behavior, outputSchema }: PrepareRequest): JsonObject {
  return { ...behavior, ...(outputSchema === undefined ? {} : { schema: outputSchema }) };
}

/** The outputs of a plan with their schemas, and the entries that these come from. */
interface PlannedOutputs {
  readonly outputs: readonly OutputDeclaration[];
  readonly sources: readonly PlanSource[];
}

/** Loads the schemas that outputs name by id, and compiles all schemas. An unusable one refuses the run. */
async function planOutputs(
  env: Pick<Sources, 'items'> & Pick<Preparation, 'checkSchema'>,
  { outputs, origins }: Pick<Composed, 'outputs' | 'origins'>,
): Promise<PlannedOutputs> {
  const planned: OutputDeclaration[] = [];
  const sources: PlanSource[] = [];
  for (const output of outputs) {
    const { name, schema_id: id } = output;
    const origin = origins[`outputs.${name}`] ?? '';
    let { schema } = output;
    if (id !== undefined) {
      const item = await env.items.load('knowledge', id, 'context');
      const entry = parseKnowledge(item.text, item.path);
      assertIdentity(item, entry);
      schema = schemaIn(entry.body, `${item.path}: the schema ${id}`);
      sources.push(sourceOf(item));
    }
    if (schema) await assertCompiles(env, name, schema, origin);
    planned.push(schema ? { ...output, schema, ...typed(output, schema) } : output);
  }
  return { outputs: planned, sources };
}

/** An output that names its schema by id gets the type from it. */
function typed(
  { schema_id: id }: OutputDeclaration,
  schema: JsonObject,
): Partial<OutputDeclaration> {
  return id === undefined ? {} : { type: typeOfSchema(schema) };
}

/** Returns the schema of an entry: its first block of JSON, else its whole text. */
function schemaIn(body: string, what: string): JsonObject {
  try {
    return parseSchema(findFence(body, ['json'])?.content ?? body);
  } catch (error) {
    if (!(error instanceof SchemaProblem)) throw error;
    throw new RyeError('directive_malformed', `${what} cannot be used: ${error.message}`, {
      hint: 'Put one JSON Schema object between a line ```json and a line ```.',
    });
  }
}

async function assertCompiles(
  { checkSchema }: Pick<Preparation, 'checkSchema'>,
  name: string,
  schema: JsonObject,
  origin: string,
): Promise<void> {
  try {
    await checkSchema({ type: 'object', properties: { [name]: schema } });
  } catch (error) {
    const { message, hint } = toRyeError(error);
    const text = `${origin}: the schema of the output "${name}": ${message}`;
    throw new RyeError('directive_malformed', text, { hint, cause: error });
  }
}
