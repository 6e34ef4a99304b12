import type { AskedPermission } from '../core/approval.ts';
import { mergeBehavior } from '../core/behavior.ts';
import type { Acknowledgement } from '../core/capability.ts';
import { RyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import type {
  ContextRef,
  Directive,
  DirectiveContext,
  RawHook,
  RawLimit,
} from './directive-ast.ts';
import { formatProblem } from './source.ts';

/** Maximum directives in one chain, the leaf included. */
const MAX_CHAIN = 16;

/** A directive with the id under which it was found. Members that a loader adds are kept. */
export interface LoadedDirective {
  readonly id: string;
  readonly directive: Directive;
}

/** An upper bound that an ancestor sets on the capabilities of all descendants. */
export interface Ceiling {
  readonly id: string;
  readonly origin: string;
  readonly capabilities: readonly string[];
}

/** Members that a composed chain has in the form of a single directive. */
type Kept =
  | 'name'
  | 'version'
  | 'description'
  | 'author'
  | 'model'
  | 'rawLimits'
  | 'rawHooks'
  | 'continuationDirective'
  | 'behavior'
  | 'inputs'
  | 'outputs'
  | 'steps'
  | 'body';

/** A composed chain of directives, not yet interpolated or checked against policy. */
export interface Composed extends Pick<Directive, Kept> {
  readonly category: string;
  readonly capabilities: readonly string[];
  /** The capabilities without which the directive may run. */
  readonly optional: readonly string[];
  /** The demands of the whole chain: an ancestor's demand binds its descendants. */
  readonly asks: readonly AskedPermission[];
  readonly acknowledgements: readonly Acknowledgement[];
  /** From the root to the parent of the leaf. The leaf's own ceiling binds only its descendants. */
  readonly ceilings: readonly Ceiling[];
  /** The leaf's `<permissions>` as written, else the element of the ancestor that supplies the capabilities. */
  readonly permissionsXml: string;
  readonly context: Omit<DirectiveContext, 'suppress'>;
  readonly suppress: readonly string[];
  /** Dotted path of each value in the plan → `file:line` of the file that declares it. */
  readonly origins: Readonly<Record<string, string>>;
  readonly warnings: readonly string[];
}

/**
 * Loads a directive and its ancestors, root first. Throws `extends_cycle` or `extends_too_deep` (more than 16) with the
 * chain. `leafExtends` replaces the leaf's own `extends`, for routing by hooks.
 */
export async function walkChain<T extends LoadedDirective>(
  leafId: string,
  load: (id: string) => Promise<T>,
  leafExtends?: string,
): Promise<readonly T[]> {
  const chain: T[] = [];
  const seen: string[] = [];
  let next: string | undefined = leafId;
  while (next !== undefined) {
    if (seen.includes(next)) {
      throw new RyeError(
        'extends_cycle',
        `directives extend each other in a cycle: ${arrow([...seen, next])}`,
        {
          hint: `Remove one extends attribute of the cycle.`,
          details: { chain: [...seen, next] },
        },
      );
    }
    seen.push(next);
    if (seen.length > MAX_CHAIN) {
      throw new RyeError(
        'extends_too_deep',
        `more than ${MAX_CHAIN} directives extend each other: ${arrow(seen)}`,
        {
          hint: 'Merge some of the ancestors.',
          details: { chain: seen },
        },
      );
    }
    const loaded: T = await loadAncestor(next, chain[0], load);
    next = (seen.length === 1 ? leafExtends : undefined) ?? loaded.directive.extends;
    chain.unshift(loaded);
  }
  return chain;
}

/** Loads the next directive of the chain. An unusable ancestor is an error of the directive that extends it. */
async function loadAncestor<T extends LoadedDirective>(
  id: string,
  child: T | undefined,
  load: (id: string) => Promise<T>,
): Promise<T> {
  try {
    return await load(id);
  } catch (error) {
    if (!(error instanceof RyeError) || child === undefined) throw error;
    const { origins, path } = child.directive;
    const origin = origins['extends'] ?? path;
    throw new RyeError(error.code, `${origin}: ${child.id} extends ${id}: ${error.message}`, {
      hint: error.hint,
      details: error.details,
      cause: error,
    });
  }
}

function arrow(ids: readonly string[]): string {
  return ids.join(' → ');
}

/**
 * Composes a chain, root first, leaf last. Context is concatenated and deduplicated per position, suppress is a union,
 * and hooks and inputs accumulate, where a descendant's replaces an ancestor's with the same id or name in place. Capabilities
 * and model come from the nearest directive that declares any, each limit and each behavior setting from the nearest
 * that declares it. Everything else comes from the leaf.
 */
export function composeChain(chainRootFirst: readonly LoadedDirective[]): Composed {
  const chain = chainRootFirst.map(({ directive }) => directive);
  const leaf = chain.at(-1);
  if (leaf === undefined) throw new RyeError('internal', 'the chain of directives is empty');
  const nearestFirst = chain.toReversed();
  const granting = nearestFirst.find(declaresPermissions) ?? leaf;
  const withModel = nearestFirst.find(({ model }) => model !== undefined) ?? leaf;
  const continuing = nearestFirst.find((one) => one.continuationDirective !== undefined) ?? leaf;
  return compact({
    name: leaf.name,
    version: leaf.version,
    description: leaf.description,
    category: leaf.category ?? '',
    author: leaf.author,
    model: withModel.model,
    rawLimits: nearestLimits(nearestFirst),
    capabilities: granting.permissions.capabilities,
    optional: granting.permissions.optional,
    asks: chain.flatMap(({ permissions }) => permissions.asks),
    acknowledgements: acknowledgements(leaf, granting),
    ceilings: ceilings(chainRootFirst.slice(0, -1)),
    permissionsXml: leaf.permissions.xml === '' ? granting.permissions.xml : leaf.permissions.xml,
    rawHooks: mergeHooks(chain),
    context: {
      system: concatRefs(chain, 'system'),
      before: concatRefs(chain, 'before'),
      after: concatRefs(chain, 'after'),
    },
    suppress: [...new Set(chain.flatMap(({ context }) => context.suppress))],
    continuationDirective: continuing.continuationDirective,
    behavior: mergeBehavior(...chain.map(({ behavior }) => behavior)),
    inputs: mergeInputs(chain),
    outputs: leaf.outputs,
    steps: leaf.steps,
    body: leaf.body,
    origins: composeOrigins(chain, { leaf, granting, withModel }),
    warnings: chain.flatMap(({ warnings }) => warnings.map(formatProblem)),
  });
}

/** True if a directive declares what it may do, nothing too; acknowledgements alone belong to what an ancestor grants. */
function declaresPermissions({ permissions }: Directive): boolean {
  const { capabilities, acknowledgements: accepted, xml } = permissions;
  return capabilities.length > 0 || (xml !== '' && accepted.length === 0);
}

function nearestLimits(nearestFirst: readonly Directive[]): readonly RawLimit[] {
  const limits = new Map<string, RawLimit>();
  for (const limit of nearestFirst.flatMap(({ rawLimits }) => rawLimits)) {
    if (!limits.has(limit.name)) limits.set(limit.name, limit);
  }
  return [...limits.values()];
}

/** An acknowledgement belongs to the capabilities beside it, so only the ancestor that supplies those contributes. */
function acknowledgements(leaf: Directive, granting: Directive): readonly Acknowledgement[] {
  const inherited = granting === leaf ? [] : granting.permissions.acknowledgements;
  return [...inherited, ...leaf.permissions.acknowledgements];
}

function ceilings(ancestors: readonly LoadedDirective[]): readonly Ceiling[] {
  return ancestors
    .filter(({ directive }) => directive.permissions.ceiling)
    .map(({ id, directive: { permissions } }) => ({
      id,
      origin: permissions.origin,
      capabilities: permissions.capabilities,
    }));
}

/** Two hooks of one directive with one id both stay, as does a gate beside another hook of its id: that is an error later. */
function mergeHooks(chain: readonly Directive[]): readonly RawHook[] {
  const hooks: RawHook[] = [];
  for (const { rawHooks } of chain) {
    const own = new Set<RawHook>();
    for (const hook of rawHooks) {
      const at = hooks.findIndex((earlier) => !own.has(earlier) && replaces(hook, earlier));
      own.add(hook);
      if (at === -1) hooks.push(hook);
      else hooks[at] = hook;
    }
  }
  return hooks;
}

function replaces({ value: hook }: RawHook, { value: earlier }: RawHook): boolean {
  if (hook['id'] === undefined || hook['id'] !== earlier['id']) return false;
  const events = [earlier['event'], hook['event']];
  // a hook without an event switches the earlier one off
  return events[0] !== 'tool_gate' || events[1] === undefined || events[1] === 'tool_gate';
}

function mergeInputs(chain: readonly Directive[]): Directive['inputs'] {
  return [...new Map(chain.flatMap(({ inputs }) => inputs.map((one) => [one.name, one]))).values()];
}

function concatRefs(
  chain: readonly Directive[],
  position: 'system' | 'before' | 'after',
): readonly ContextRef[] {
  const refs = new Map<string, ContextRef>();
  for (const ref of chain.flatMap(({ context }) => context[position])) {
    if (!refs.has(ref.id)) refs.set(ref.id, ref);
  }
  return [...refs.values()];
}

interface Sources {
  readonly leaf: Directive;
  readonly granting: Directive;
  readonly withModel: Directive;
}

/** Returns the one directive that supplies a value; undefined if the nearest that declares it does. */
function sourceOf(path: string, sources: Sources): Directive | undefined {
  const [head] = path.split('.');
  if (head === 'capabilities') return sources.granting;
  if (head === 'model') return sources.withModel;
  const inheritable = [
    'limits',
    'behavior',
    'hooks',
    'inputs',
    'context',
    'continuation_directive',
  ];
  return head !== undefined && inheritable.includes(head) ? undefined : sources.leaf;
}

function composeOrigins(chain: readonly Directive[], sources: Sources): Record<string, string> {
  const origins: Record<string, string> = {};
  for (const directive of chain) {
    for (const [path, origin] of Object.entries(directive.origins)) {
      const source = sourceOf(path, sources);
      if (source === undefined || source === directive) origins[path] = origin;
    }
    for (const position of ['system', 'before', 'after'] as const) {
      for (const { id, origin } of directive.context[position])
        origins[`context.${position}.${id}`] ??= origin;
    }
    for (const hook of directive.rawHooks) {
      if (typeof hook.value['id'] === 'string') origins[`hooks.${hook.value['id']}`] = hook.origin;
    }
  }
  return origins;
}
