import { mergeBehavior, withoutUnset } from '../../core/behavior.ts';
import { messageOf, RyeError } from '../../core/errors.ts';
import type { HookDeclaration } from '../../core/hook.ts';
import { compact, isJsonObject, type JsonObject, parseJson } from '../../core/json.ts';
import type { PlannedTool, PlanSource, ThreadPlan } from '../../core/plan.ts';
import { DIRECTIVE_RETURN, hasSchema, resultSchema } from '../../core/return-schema.ts';
import { parseDistinctHooks } from '../../hooks/declaration.ts';
import { dispatchRouting } from '../../hooks/dispatch.ts';
import { isSuppressed } from '../../hooks/run-hook.ts';
import { literalNeeds, mergeLayers, missingCapability } from '../../hooks/sources.ts';
import { assertIdentity } from '../../items/binding.ts';
import { parseDirective } from '../../items/directive.ts';
import type { Directive } from '../../items/directive-ast.ts';
import {
  type Composed,
  composeChain,
  type LoadedDirective,
  walkChain,
} from '../../items/extends.ts';
import { likelyInputs } from '../../items/inputs.ts';
import { SchemaProblem, withoutReferences } from '../../items/output-schema.ts';
import { lostReferences } from '../../items/process-references.ts';
import { parseBehavior } from '../../loop/behavior.ts';
import type { LoopPorts, ReturnCheck } from '../../loop/ports.ts';
import type { ItemSource, LoadedItem, OpenTools, Preparation, Sources } from '../ports.ts';
import type { ThreadConfig } from '../thread-config.ts';
import type { DirectiveRequest } from './request.ts';

const DIRECTIVE_LAYER = 1;

interface ChainLink extends LoadedDirective {
  readonly item: LoadedItem;
}

/** A directive with its ancestors, composed, and the verified files that they come from. */
export interface ResolvedDirective {
  readonly leaf: LoadedItem;
  readonly chain: readonly PlanSource[];
  readonly composed: Composed;
  readonly hooks: readonly HookDeclaration[];
  readonly warnings: readonly string[];
  /** The hook that chose the parent, if one did. */
  readonly routedBy: string | undefined;
  /** The context of `resolve_extends` hooks. */
  readonly routingContext: JsonObject;
}

/** Loads and verifies a directive, lets `resolve_extends` hooks route it, walks and composes its chain. */
export async function resolveDirective(
  items: ItemSource,
  config: ThreadConfig,
  { directiveId, inputs }: Required<Pick<DirectiveRequest, 'directiveId' | 'inputs'>>,
): Promise<ResolvedDirective> {
  const load = async (id: string): Promise<ChainLink> => {
    const item = await items.load('directive', id, 'execute');
    const directive = parseDirective(item.text, item.path);
    assertIdentity(item, directive);
    return { id, item, directive };
  };
  const leaf = await load(directiveId);
  const { directive } = leaf;
  const ownHooks = parseDistinctHooks(directive.rawHooks, DIRECTIVE_LAYER);
  const { id, tier, provider } = directive.model ?? {};
  const declared =
    directive.inputs.length > 0 ? directive.inputs : await inheritedInputs(directiveId, leaf, load);
  const routingContext: JsonObject = {
    directive: directiveId,
    has_extends: directive.extends !== undefined,
    category: directive.category ?? '',
    inputs: likelyInputs(declared, inputs),
    model: id ?? tier ?? null,
    requested_model: compact({ id, tier, provider }),
  };
  const routing = dispatchRouting(
    mergeLayers({ ...config.hooks, directive: ownHooks }).hooks,
    routingContext,
  );
  const links = await walkChain(
    directiveId,
    async (link) => (link === directiveId ? leaf : await load(link)),
    routing.target,
  );
  const composed = composeChain(links);
  assertReferences(directive, composed);
  const directiveHooks = parseDistinctHooks(composed.rawHooks, DIRECTIVE_LAYER);
  const merged = mergeLayers({ ...config.hooks, directive: directiveHooks });
  return {
    leaf: leaf.item,
    chain: links.map(({ item }) => sourceOf(item)),
    composed,
    hooks: merged.hooks,
    warnings: merged.warnings,
    routedBy: routing.decidedBy,
    routingContext,
  };
}

/** Refuses a process that names inputs which its directive does not inherit: `directive_malformed`. */
function assertReferences({ inputs }: Directive, composed: Composed): void {
  // the references to the directive's own inputs were checked when it was read
  if (inputs.length > 0 || composed.inputs.length === 0) return;
  const names = composed.inputs.map(({ name }) => name);
  const [lost] = lostReferences({ ...composed, inputs: names });
  if (!lost) return;
  const { message, hint, location } = lost;
  throw new RyeError('directive_malformed', message, { hint, location });
}

/** Returns the inputs that a directive without its own inherits if no hook routes it; none if its ancestors can't be loaded. */
async function inheritedInputs(
  directiveId: string,
  leaf: ChainLink,
  load: (id: string) => Promise<ChainLink>,
): Promise<Composed['inputs']> {
  if (leaf.directive.extends === undefined) return [];
  try {
    const links = await walkChain(directiveId, async (id) =>
      id === directiveId ? leaf : await load(id),
    );
    return composeChain(links).inputs;
  } catch {
    return [];
  }
}

/** The part of a loaded item that a plan and thread.json name. */
export function sourceOf({
  type,
  id,
  space,
  path,
  sha256,
  integrity,
  key_id,
}: LoadedItem): PlanSource {
  const signer = key_id === undefined ? {} : { key_id };
  return { type, id, space, path, sha256, integrity, ...signer };
}

/** The hooks of a plan, and one sentence for each that cannot run as written. */
export interface PlannedHooks {
  readonly hooks: readonly HookDeclaration[];
  readonly warnings: readonly string[];
}

/**
 * Marks the hooks that came with rye, so that a thread can resume where rye is installed elsewhere, and those that
 * the directive suppresses; then checks that the others can take their actions.
 */
export async function planHooks(
  env: Pick<Sources, 'items'> & Pick<Preparation, 'isShipped'>,
  {
    hooks: merged,
    composed,
  }: Pick<ResolvedDirective, 'hooks'> & { readonly composed: Pick<Composed, 'suppress'> },
  capabilities: readonly string[],
): Promise<PlannedHooks> {
  const hooks = merged.map((hook) => ({
    ...hook,
    ...(env.isShipped(hook.origin) ? { shipped: true as const } : {}),
    ...(isSuppressed(hook, composed.suppress) ? { suppressed: true as const } : {}),
  }));
  const warnings: string[] = [];
  for (const hook of hooks) {
    if (!hook.enabled || hook.shipped === true || hook.suppressed === true) continue;
    const reason = await whyUnusable(env, hook, capabilities);
    if (reason !== undefined)
      warnings.push(`hook ${hook.id} cannot run: ${reason} (${hook.origin})`);
  }
  return { hooks, warnings };
}

async function whyUnusable(
  env: Pick<Sources, 'items'>,
  hook: HookDeclaration,
  capabilities: readonly string[],
): Promise<string | undefined> {
  const missing = missingCapability(hook, capabilities);
  if (missing !== undefined)
    return `it needs ${missing}, which neither its thread nor its file may use`;
  for (const { verb, item_type: type, item_id: id } of literalNeeds(hook)) {
    if (verb === 'sign' || (type !== 'directive' && type !== 'knowledge')) continue;
    const isText = verb === 'fetch' || type === 'knowledge';
    try {
      await env.items.load(type, id, isText ? 'context' : 'execute');
    } catch (error) {
      return messageOf(error);
    }
  }
  return undefined;
}

/**
 * The behavior of a thread: that of the configuration, below that of the directive, below that of the run. A member that is null
 * unsets. A schema given as text becomes the object; one that can't be used is an error before anything runs.
 */
export async function planBehavior(
  env: Pick<Preparation, 'checkSchema'>,
  config: ThreadConfig,
  { composed, given }: { readonly composed: Composed; readonly given: JsonObject | undefined },
): Promise<JsonObject> {
  if (given) assertOptions(given);
  const merged = mergeBehavior(config.behavior, composed.behavior, given ?? {});
  const { schema: raw, ...rest } = withoutUnset(merged);
  const parsed = typeof raw === 'string' ? parseJson(raw) : raw;
  const behavior: JsonObject = compact({
    ...rest,
    schema: parsed !== undefined && isJsonObject(parsed) ? flatSchema(parsed) : raw,
  });
  const { schema } = parseBehavior(behavior);
  if (schema) await env.checkSchema(schema);
  return behavior;
}

/** Refuses members of the request that make no sense as options, before they are mixed with the directive's. */
function assertOptions(given: JsonObject): void {
  try {
    parseBehavior(withoutUnset(given));
  } catch (error) {
    throw new RyeError('usage', messageOf(error), {
      hint: 'Correct it in the options of the run.',
    });
  }
}

/** Returns the schema without references if it has none that are recursive: providers take no others. */
function flatSchema(schema: JsonObject): JsonObject {
  try {
    return withoutReferences(schema);
  } catch (error) {
    if (error instanceof SchemaProblem) return schema;
    throw error;
  }
}

/** Refuses aliases by which a model could not tell two tools apart: `wire_name_collision`. */
export function assertAliases(behavior: JsonObject, tools: readonly PlannedTool[]): void {
  const { toolAliases } = parseBehavior(behavior);
  const taken = new Map<string, string>(RESERVED_NAMES.map((name) => [name, 'which is reserved']));
  for (const { id, name } of tools) {
    const shown = toolAliases.get(name) ?? name;
    const rival = taken.get(shown);
    if (rival !== undefined) {
      throw new RyeError(
        'wire_name_collision',
        `the tool ${id} would take the name ${shown}, ${rival}`,
        { hint: 'Choose another name in behavior.tool_aliases.', details: { name: shown } },
      );
    }
    taken.set(shown, `which the tool ${id} has`);
  }
}

const RESERVED_NAMES = [DIRECTIVE_RETURN, 'directive_return', 'tool_search'];

/** Checks what a directive returns: by its declared outputs, then by their schemas and the schema of its behavior. */
export function returnCheck(plan: ThreadPlan, tools: OpenTools): LoopPorts['checkReturn'] {
  const shape = { outputs: plan.outputs, schema: parseBehavior(plan.behavior).schema };
  const schema = hasSchema(shape) ? resultSchema(shape) : undefined;
  return async (input): Promise<ReturnCheck> => {
    const checked = tools.checkReturn(input);
    if (!checked.ok || !schema) return checked;
    const valid = await tools.validate(schema, checked.outputs);
    return valid.ok
      ? { ok: true, outputs: valid.input }
      : { ok: false, problems: [valid.problems] };
  };
}
