import type { AskedPermission } from '../../core/approval.ts';
import { type Acknowledgement, RISKS, type Risk, toolProblem } from '../../core/capability.ts';
import { EXIT, joinHints, RyeError } from '../../core/errors.ts';
import { type RenamedGrant, renamedGrant } from '../../core/ids.ts';
import { compact } from '../../core/json.ts';
import type {
  ContextBlock,
  ListedRule,
  PlannedModel,
  PlannedRules,
  PlannedTool,
  ProgramParts,
  ThreadPlan,
} from '../../core/plan.ts';
import type { Ceiling, Composed } from '../../items/extends.ts';
import {
  attenuate,
  covers,
  includes,
  isExact,
  namedServer,
  parseCapability,
  uncovered,
} from '../../policy/capability.ts';
import {
  type AssessedRisk,
  assessRisks,
  boundedCapabilities,
  type RiskTable,
} from '../../policy/risk.ts';
import type { Embedding, GrantedTool, ItemSource, Sources, UnavailableGrant } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';
import type { PrepareRequest } from './request.ts';

/**
 * Returns a thread's capabilities: those that its chain grants, within every ceiling, within the tools that the request
 * names and within its parent's, plus the capabilities of the file of the hook that starts it.
 */
export function planCapabilities(
  composed: Composed,
  parent: ThreadDocument | undefined,
  { onlyTools, hookCapabilities = [] }: Pick<PrepareRequest, 'onlyTools' | 'hookCapabilities'> = {},
): readonly string[] {
  const granted = composed.capabilities.map((text) => parseCapability(text));
  for (const ceiling of composed.ceilings) assertWithin(granted, ceiling, composed.name);
  const named = onlyTools?.flatMap(capabilitiesOf);
  const declared = named === undefined ? granted : attenuate(granted, named);
  return parent
    ? attenuate(declared, [...parent.capabilities, ...hookCapabilities])
    : [...new Set(declared)];
}

/** Returns what a tool of a request needs. A search finds only what the thread may fetch. */
function capabilitiesOf(toolId: string): readonly string[] {
  const execute = parseCapability(`rye.execute.tool.${toolId}`);
  return toolId === 'rye/search' ? [execute, 'rye.fetch.knowledge.*'] : [execute];
}

/** Merges the `ask` demands of chain and parent: a child must ask wherever its parent must. */
export function planAsks(
  { asks }: Pick<Composed, 'asks'>,
  parent: ThreadDocument | undefined,
): Pick<ThreadPlan, 'asks'> {
  const all = [...(parent?.asks ?? []), ...asks];
  const isFirst = (ask: AskedPermission, at: number): boolean =>
    all.findIndex((one) => one.capability === ask.capability && one.reason === ask.reason) === at;
  return all.length === 0 ? {} : { asks: all.filter(isFirst) };
}

/**
 * Grants on ids of Rye OS as grants on what these are here, each with a warning. A grant on an item that exists under the old id keeps its
 * meaning, so no file can widen it.
 */
export async function renamedGrants(
  items: ItemSource,
  composed: Composed,
): Promise<{ readonly composed: Composed; readonly warnings: readonly string[] }> {
  const warnings = new Set<string>();
  const rename = async (text: string): Promise<string> => {
    const grant = renamedGrant(parseCapability(text));
    if (grant === undefined || (await isThere(items, grant))) return text;
    warnings.add(`the permission for ${grant.id} of Rye OS grants ${grant.capability}`);
    return grant.capability;
  };
  const renameAll = async (texts: readonly string[]): Promise<readonly string[]> =>
    await Promise.all(texts.map(rename));
  const capabilities = await renameAll(composed.capabilities);
  const optional = await renameAll(composed.optional);
  const asks = await Promise.all(
    composed.asks.map(async (ask) => ({ ...ask, capability: await rename(ask.capability) })),
  );
  const ceilings = await Promise.all(
    composed.ceilings.map(async (ceiling) => ({
      ...ceiling,
      capabilities: await renameAll(ceiling.capabilities),
    })),
  );
  return {
    composed: { ...composed, capabilities, optional, asks, ceilings },
    warnings: [...warnings],
  };
}

async function isThere(items: ItemSource, { type, id }: RenamedGrant): Promise<boolean> {
  try {
    const use = type === 'knowledge' ? 'context' : 'execute';
    return (await items.load(type, id, use)).id === id;
  } catch (error) {
    // one that cannot be used is there all the same; one that no trusted key signed is a copy from Rye OS
    if (!(error instanceof RyeError)) return true;
    return error.code !== 'item_not_found' && error.exitCode !== EXIT.integrity;
  }
}

function assertWithin(
  capabilities: readonly string[],
  { id, origin, capabilities: bound }: Ceiling,
  name: string,
): void {
  const beyond = uncovered(capabilities, bound);
  if (beyond.length === 0) return;
  throw new RyeError(
    'ceiling_exceeded',
    `${name} asks for more than its ancestor ${id} allows: ${beyond.join(', ')}`,
    {
      hint: `Remove them from <permissions>, or widen the ceiling at ${origin}.`,
      details: { uncovered: beyond, ceiling: id },
    },
  );
}

/**
 * Refuses a directive that names a tool, an MCP server or a skill that can't be used: `tool_unavailable`. A tool whose
 * signature or id does not hold is refused with the code of that fault.
 */
export function assertAvailable(
  unavailable: readonly UnavailableGrant[],
  { name, capabilities, optional }: Pick<Composed, 'name' | 'capabilities' | 'optional'>,
): void {
  const naming = capabilities
    .filter((one) => !optional.includes(one))
    .map((one) => parseCapability(one))
    .filter((one) => isExact(one) || namedServer(one) !== undefined);
  const lost = unavailable.filter(({ capability }) =>
    naming.some((one) => includes(one, capability)),
  );
  const broken = lost.find(({ capability, error }) => isToolFault(capability, error));
  if (broken) throw broken.error;
  const [first] = lost;
  if (first) throw notAvailable(name, lost);
}

function isToolFault(capability: string, { code, exitCode }: RyeError): boolean {
  const isFault = exitCode === EXIT.integrity && code !== 'unsigned';
  // of a server it is the configuration that does not hold, and the server is what is missing
  if (namedServer(capability) !== undefined) return false;
  return capability.startsWith('rye.execute.tool.') && (isFault || code === 'invalid_item_id');
}

function notAvailable(name: string, lost: readonly UnavailableGrant[]): RyeError {
  const reasons = [...new Set(lost.map(({ error }) => error.message))];
  const fixes = [...new Set(lost.flatMap(({ error }) => error.hint ?? []))];
  return new RyeError(
    'tool_unavailable',
    `${name} needs tools that are not available: ${reasons.join('; ')}`,
    {
      hint: joinHints([...fixes, OPTIONAL_HINT]),
      details: {
        unavailable: lost.map(({ capability, error }) => ({ capability, reason: error.code })),
      },
    },
  );
}

/** Tells how a directive can run without something. */
export const OPTIONAL_HINT =
  'To run without it, write optional="true" on its entry in the directive.';

export interface RiskPlan {
  readonly acknowledged: readonly Acknowledgement[];
  readonly risks: readonly AssessedRisk[];
  readonly tools: readonly PlannedTool[];
}

/** Judges the capabilities; the first refusal ends prepare, all of them are in its details. */
export function planRisks(request: {
  readonly table: RiskTable;
  readonly capabilities: readonly string[];
  readonly declared: readonly Acknowledgement[];
  /** Risks acknowledged by `--acknowledge`. */
  readonly options: readonly string[];
  readonly granted: readonly GrantedTool[];
}): RiskPlan {
  const { table, capabilities, declared, options, granted } = request;
  const acknowledged = [...declared, ...options.map(optionAcknowledgement)];
  const itemTools = granted.filter(({ builtin }) => !builtin);
  const toolRisks = new Map(itemTools.map(({ id, declaredRisk }) => [id, declaredRisk]));
  const bounded = boundedCapabilities(
    capabilities,
    granted.map(({ id, own = false, builtin }) => ({ id, own: own || !builtin })),
  );
  const { risks, refusals } = assessRisks({
    capabilities,
    table,
    acknowledged,
    toolRisks,
    bounded,
  });
  const [refusal] = refusals;
  if (refusal) {
    throw new RyeError(refusal.code, refusal.message, {
      hint: refusal.hint,
      details: { ...refusal.details, refusals: refusals.map(({ message }) => message) },
    });
  }
  return { acknowledged, risks, tools: granted.map((tool) => judgeTool(tool, table)) };
}

function judgeTool(
  { declaredRisk, builtin, own: _own, ...tool }: GrantedTool,
  table: RiskTable,
): PlannedTool {
  const capability = `rye.execute.tool.${tool.id.replaceAll('/', '.')}`;
  const { risks } = assessRisks({
    capabilities: [capability],
    table,
    acknowledged: [],
    toolRisks: builtin ? new Map() : new Map([[tool.id, declaredRisk]]),
  });
  return { ...tool, risk: risks[0]?.risk ?? 'elevated' };
}

/** An `--acknowledge` option; `usage` where it names no risk, or no tool after a colon. */
export function optionAcknowledgement(text: string): Acknowledgement {
  const [, name, tool] = /^([^:]*)(?::(.*))?$/s.exec(text) ?? [];
  const risk = RISKS.find((known): known is Risk => known === name);
  if (risk === undefined) {
    throw new RyeError('usage', `--acknowledge has the unknown risk "${name}"`, {
      hint: `Use one of ${RISKS.join(', ')}.`,
    });
  }
  const problem = tool === undefined ? undefined : toolProblem(tool);
  if (problem !== undefined) {
    throw new RyeError('usage', `--acknowledge has no tool and no pattern of tools: "${tool}"`, {
      hint: `Write it as in --acknowledge ${risk}:rye/bash.`,
    });
  }
  return compact({
    risk,
    tool,
    reason: 'acknowledged on the command line',
    origin: '--acknowledge',
  });
}

/** Throws `model_unpriced` for a model without a price, whose spend can't be capped, unless the user allows it. */
export function assertPriced(models: readonly PlannedModel[], allowUnpriced: boolean): void {
  const unpriced = models.find(({ pricing }) => pricing === null);
  if (!unpriced || allowUnpriced) return;
  throw new RyeError(
    'model_unpriced',
    `no price is known for ${unpriced.provider}/${unpriced.id}, so its spend cannot be capped`,
    {
      hint: `Add a price to .ai/config/agent/providers/${unpriced.provider}.yaml, or run with --allow-unpriced.`,
    },
  );
}

export interface RulesOfPlan {
  readonly rules: PlannedRules | undefined;
  /** For the system text: rules that always apply, then those that can be fetched. */
  readonly blocks: readonly ContextBlock[];
  readonly warnings: readonly string[];
}

/** The rules of a thread and what of them its model is told from the start. Without a model there are none. */
export async function planRules(
  env: Pick<Sources, 'rules' | 'models'>,
  facts: {
    readonly directive: string;
    readonly model: PlannedModel;
    readonly capabilities: readonly string[];
  },
): Promise<RulesOfPlan> {
  const planned = env.models.traits(facts.model).replayable
    ? undefined
    : await env.rules.plan(facts.directive);
  if (planned === undefined) return { rules: undefined, blocks: [], warnings: [] };
  const { rules, warnings } = planned;
  const always = rules.always.map(
    ({ name, path, body }): ContextBlock => ({
      position: 'system',
      id: `rule:${name}`,
      source: path,
      content: body,
    }),
  );
  const rulebook = rules.rulebook.filter(({ id }) =>
    covers(facts.capabilities, { verb: 'fetch', item_type: 'rule', item_id: id }),
  );
  return {
    rules: { ...rules, rulebook },
    blocks: [...always, ...rulebookBlock(rulebook)],
    warnings,
  };
}

function rulebookBlock(rulebook: readonly ListedRule[]): readonly ContextBlock[] {
  if (rulebook.length === 0) return [];
  const lines = rulebook.map(({ id, description }) => `- ${id}: ${description}`);
  const content = `Rules of this project, to read with rye_fetch {"item_type": "rule", "item_id": …} when they concern what you do:\n${lines.join('\n')}`;
  return [{ position: 'system', id: 'rulebook', source: 'rules', content }];
}

const HINT =
  'docs/library.md, "Threads in other processes", shows how a program runs its threads in separate processes.';

/** Returns the parts of a program that a plan depends on; none if no part of a program concerns the thread. */
export function programOf(
  { program }: Pick<Embedding, 'program'>,
  { tools, chain, capabilities }: Pick<ThreadPlan, 'tools' | 'chain' | 'capabilities'>,
): { readonly program?: ProgramParts } {
  if (!program) return {};
  const parts: ProgramParts = {
    handlers: program.handlers,
    tools: program.tools.filter((one) => tools.some(({ id }) => id === one)),
    ...present('directives', program, (one) => chain.some(({ id }) => id === one)),
    ...present('mcp_servers', program, (one) =>
      tools.some(({ id }) => id.startsWith(`mcp/${one}/`)),
    ),
    ...present('skills', program, (one) =>
      covers(capabilities, { verb: 'fetch', item_type: 'skill', item_id: one }),
    ),
  };
  return PARTS.every(([name]) => (parts[name] ?? []).length === 0) ? {} : { program: parts };
}

const PARTS = [
  ['handlers', 'the handlers'],
  ['tools', 'the tools'],
  ['directives', 'the directives'],
  ['mcp_servers', 'the MCP servers'],
  ['skills', 'the skills'],
] as const satisfies readonly (readonly [keyof ProgramParts, string])[];

function present<N extends keyof ProgramParts>(
  name: N,
  program: ProgramParts,
  isUsed: (part: string) => boolean,
): Pick<ProgramParts, N> | undefined {
  const used = program[name]?.filter(isUsed) ?? [];
  return used.length === 0 ? undefined : ({ [name]: used } as unknown as Pick<ProgramParts, N>);
}

/** Refuses to run a thread without the functions that it was approved with: `program_required`. */
export function assertProgram(
  env: Pick<Embedding, 'program'>,
  { program }: ThreadPlan,
  threadId: string,
): void {
  if (!program) return;
  const missing = (name: keyof ProgramParts): readonly string[] =>
    (program[name] ?? []).filter((part) => env.program?.[name]?.includes(part) !== true);
  if (PARTS.every(([name]) => missing(name).length === 0)) return;
  throw required(`the thread ${threadId} was started by a program with`, {
    handlers: missing('handlers'),
    tools: missing('tools'),
    ...present('directives', program, (one) => missing('directives').includes(one)),
    ...present('mcp_servers', program, (one) => missing('mcp_servers').includes(one)),
    ...present('skills', program, (one) => missing('skills').includes(one)),
  });
}

/** Refuses to start a process that would not have the functions that a thread was approved with: `program_required`. */
export function assertTravels(
  { program: parts }: Pick<Embedding, 'program'>,
  { program }: ThreadPlan,
): void {
  if (!program || parts?.travels === true) return;
  throw required('another process would run the thread without', program);
}

function required(what: string, parts: ProgramParts): RyeError {
  const named = PARTS.flatMap(([name, label]) => {
    const part = parts[name] ?? [];
    return part.length > 0 ? [`${label} ${part.join(', ')}`] : [];
  }).join(' and ');
  return new RyeError('program_required', `${what} ${named}, which this one does not have`, {
    hint: HINT,
    details: { ...parts },
  });
}
