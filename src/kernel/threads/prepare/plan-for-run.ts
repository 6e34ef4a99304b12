import { RyeError } from '../../core/errors.ts';
import type { PlanChange } from '../../core/events.ts';
import { LIMIT_NAMES, type Limits } from '../../core/limits.ts';
import type { PlanSource, ThreadPlan } from '../../core/plan.ts';
import { parseDirective } from '../../items/directive.ts';
import { type Ceiling, composeChain, type LoadedDirective } from '../../items/extends.ts';
import { attenuate, covers, includes, uncovered } from '../../policy/capability.ts';
import { SHIPPED_LIMITS } from '../../policy/limits.ts';
import { assessRisks, boundedCapabilities } from '../../policy/risk.ts';
import type { Preparing } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { isImport } from './plan-at-head.ts';
import { renamedGrants } from './policy.ts';
import { type PlanForRun, type Tightened, withHooks, withRules } from './rules-for-run.ts';

/** The thread that is planned for another run. */
export interface PlannedThread {
  readonly threadId: string;
  readonly parent: ThreadDocument | undefined;
}

/**
 * Returns the plan of a thread under the policy in force now where that is stricter: new and edited rules, gates and other
 * hooks that stop, ceilings of ancestors, the parent's capabilities, the risk table, default limits. What would widen it
 * is only noticed. Throws `key_revoked` or `key_untrusted` if a file that the thread was planned from is not trusted any more.
 */
export async function planForRun(
  env: Preparing,
  planned: ThreadPlan,
  thread: PlannedThread,
): Promise<PlanForRun> {
  if (isImport(planned)) return { plan: planned, changes: [] };
  let plan = planned;
  const changes: PlanChange[] = [];
  const kept: string[] = [];
  for (const tighten of [withCeilings, withParent, withRisks, withLimits, withRules, withHooks]) {
    const found = await tighten(env, plan, thread);
    plan = found.plan;
    changes.push(...found.changes);
    kept.push(...found.kept);
  }
  noticeChanges(env, changes);
  for (const text of kept) {
    env.onNotice(
      `${text}; to plan the thread again: rye threads resume ${thread.threadId} --refresh`,
    );
  }
  return { plan, changes };
}

export function noticeChanges(
  { onNotice }: Pick<Preparing, 'onNotice'>,
  changes: readonly PlanChange[],
): void {
  for (const { text } of changes) if (text !== undefined) onNotice(text);
}

/** Reads the files of the plan again: keeps the capabilities within the ceilings that ancestors set now. */
async function withCeilings(
  env: Preparing,
  planned: ThreadPlan,
  { threadId }: PlannedThread,
): Promise<Tightened> {
  const kept: string[] = [];
  const chain: LoadedDirective[] = [];
  for (const source of planned.chain) {
    const text = isToolRun(planned) ? undefined : await textNow(env, source, { threadId, kept });
    if (text === undefined) continue;
    chain.push({ id: source.id, directive: parseDirective(text, source.path) });
  }
  const asking = withAsks(planned, chain);
  const { plan } = asking;
  const own = plan.chain.at(-1)?.id;
  const ancestors = chain.filter(({ id }) => id !== own);
  for (const source of plan.context_sources) await textNow(env, source, { threadId, kept });
  for (const { id } of plan.tools.filter(isItem)) await assertTrusted(env, id, threadId);
  const [leaf] = ancestors;
  if (leaf === undefined) return { ...asking, kept };
  const { composed } = await renamedGrants(env.items, composeChain([...ancestors, leaf]));
  const { ceilings } = composed;
  const capabilities = ceilings.reduce<readonly string[]>(lowered, plan.capabilities);
  const why = 'is beyond a ceiling that an ancestor sets now';
  const found = narrowed(plan, capabilities, () => why);
  return { plan: found.plan, changes: [...asking.changes, ...found.changes], kept };
}

/** Adds what the files of the plan ask people about now. */
function withAsks(plan: ThreadPlan, chain: readonly LoadedDirective[]): PlanForRun {
  const before = plan.asks ?? [];
  const added = chain
    .flatMap(({ directive }) => directive.permissions.asks)
    .filter(({ capability }) => !before.some((one) => includes(one.capability, capability)));
  if (added.length === 0) return { plan, changes: [] };
  return {
    plan: { ...plan, asks: [...before, ...added] },
    changes: added.map(({ capability }) => ({
      type: 'capability',
      id: capability,
      text: `a person is asked about ${capability} from now on`,
    })),
  };
}

function lowered(
  capabilities: readonly string[],
  { capabilities: bound }: Pick<Ceiling, 'capabilities'>,
): readonly string[] {
  return uncovered(capabilities, bound).length > 0 ? attenuate(capabilities, bound) : capabilities;
}

/** Keeps the capabilities of a child within those that its parent has now. */
function withParent(_env: Preparing, plan: ThreadPlan, { parent }: PlannedThread): Tightened {
  const { hook_capabilities: added = [] } = plan.requested ?? {};
  const capabilities = parent
    ? lowered(plan.capabilities, { capabilities: [...parent.capabilities, ...added] })
    : plan.capabilities;
  const why = `is beyond what its parent ${parent?.thread_id ?? ''} may do now`;
  return { ...narrowed(plan, capabilities, () => why), kept: [] };
}

/** Drops the capabilities that the risk table of today refuses. The tools count with the risk that they were planned with. */
function withRisks({ config }: Preparing, plan: ThreadPlan): Tightened {
  const own = new Set(plan.program?.tools);
  const tools = plan.tools.map((tool) => ({ id: tool.id, own: own.has(tool.id) || isItem(tool) }));
  const { refusals } = assessRisks({
    capabilities: plan.capabilities,
    table: config.risks,
    acknowledged: plan.acknowledged,
    toolRisks: new Map(plan.tools.filter(isItem).map(({ id, risk }) => [id, risk])),
    bounded: boundedCapabilities(plan.capabilities, tools),
  });
  const refused = new Map(refusals.map(({ details }) => [details?.['capability'], details]));
  const capabilities = plan.capabilities.filter((one) => !refused.has(one));
  const why = (one: string): string =>
    `has the risk ${String(refused.get(one)?.['risk'])}, which the policy refuses now`;
  return { ...narrowed(plan, capabilities, why), kept: [] };
}

/** The plan with fewer capabilities, without the tools that none of them grants any more. */
function narrowed(
  plan: ThreadPlan,
  capabilities: readonly string[],
  why: (capability: string) => string,
): PlanForRun {
  const gone = plan.capabilities.filter((one) => !capabilities.includes(one));
  if (gone.length === 0) return { plan, changes: [] };
  const isLost = (id: string): boolean => {
    const need = { verb: 'execute', item_type: 'tool', item_id: id } as const;
    return covers(plan.capabilities, need) && !covers(capabilities, need);
  };
  return {
    plan: {
      ...plan,
      capabilities,
      risks: plan.risks.filter(({ capability }) => capabilities.includes(capability)),
      tools: plan.tools.filter(({ id }) => !isLost(id)),
    },
    changes: gone.map((capability) => ({
      type: 'capability',
      id: capability,
      text: `the permission ${capability} ${why(capability)}: it is narrowed or removed`,
    })),
  };
}

/** Lowers the limits that were defaults to the defaults of today. */
function withLimits({ config }: Preparing, plan: ThreadPlan): Tightened {
  const defaults: Limits = { ...SHIPPED_LIMITS, ...config.limitDefaults.limits };
  const sunk = LIMIT_NAMES.filter(
    (name) => isDefault(plan, name) && defaults[name] < plan.limits[name],
  );
  if (sunk.length === 0) return { plan, changes: [], kept: [] };
  const limits = {
    ...plan.limits,
    ...Object.fromEntries(sunk.map((name) => [name, defaults[name]])),
  };
  const changes = sunk.map((name) => ({
    type: 'limit',
    id: name,
    text: `the default limit ${name} is ${defaults[name]} now instead of ${plan.limits[name]}, and applies`,
  }));
  return { plan: { ...plan, limits }, changes, kept: [] };
}

/** True for a limit that neither a directive, a parent nor a person has set. */
function isDefault({ origins }: ThreadPlan, name: string): boolean {
  const origin = origins[`limits.${name}`] ?? '';
  return origin === 'shipped' || DEFAULTS.test(origin);
}

const DEFAULTS = /agent\/resilience\.ya?ml/;

/** True for the plan of a tool that runs in the background: its directive has no file. */
export function isToolRun({ directive }: ThreadPlan): boolean {
  return directive.path.startsWith('rye:');
}

/** True for a tool that has a file: the others come with rye, from a server or from the program. */
function isItem({ id }: { readonly id: string }): boolean {
  return !id.startsWith('rye/') && !id.startsWith('mcp/');
}

/** Returns the text of a file of the plan; undefined, with a notice, if it can't be used any more. */
async function textNow(
  { items, isRevoked }: Pick<Preparing, 'items' | 'isRevoked'>,
  source: PlanSource,
  { threadId, kept }: { readonly threadId: string; readonly kept: string[] },
): Promise<string | undefined> {
  const { type, id, path, key_id: keyId } = source;
  if (keyId !== undefined && isRevoked(keyId)) {
    throw new RyeError(
      'key_revoked',
      `thread ${threadId} was planned with ${path}, which key ${keyId} had signed; that key was revoked`,
      {
        hint: `Check the file and sign it: rye sign ${type} ${id}. Then run: rye threads resume ${threadId} --refresh`,
        details: { path, key_id: keyId },
      },
    );
  }
  try {
    const item = await items.load(type, id, type === 'directive' ? 'execute' : 'context');
    if (item.sha256 !== source.sha256) kept.push(`the ${type} ${id} has changed since the plan`);
    return item.text;
  } catch (error) {
    const { message } = asUnusable(error, threadId);
    kept.push(`${message}, and the thread keeps what it was planned with`);
    return undefined;
  }
}

async function assertTrusted(
  { items }: Pick<Preparing, 'items'>,
  id: string,
  threadId: string,
): Promise<void> {
  try {
    await items.load('tool', id, 'execute');
  } catch (error) {
    // any other fault is that of the call that needs the tool
    asUnusable(error, threadId);
  }
}

/** Returns the fault of a file; throws it if its key is not trusted any more. */
function asUnusable(error: unknown, threadId: string): RyeError {
  if (!(error instanceof RyeError)) throw error;
  const isAboutKey = ['key_revoked', 'key_untrusted', 'key_out_of_scope'].includes(error.code);
  if (!isAboutKey) return error;
  const { code, message, hint = '', details } = error;
  throw new RyeError(
    code,
    `thread ${threadId} was planned with a file that is refused: ${message}`,
    {
      hint: `${hint}. Then run: rye threads resume ${threadId} --refresh`,
      details,
      cause: error,
    },
  );
}
