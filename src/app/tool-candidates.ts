import { capabilityOf } from '../core/capability.ts';
import { RyeError } from '../core/errors.ts';
import { wireName } from '../core/ids.ts';
import type { PlannedTool, ThreadPlan } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import type { Behavior } from '../loop/behavior.ts';
import { covers, specificity } from '../policy/capability.ts';
import type { ProviderTraits, ToolDefinition } from '../providers/provider.ts';
import type { GrantedTool } from '../threads/ports.ts';
import {
  createToolSearch,
  type DisclosureCandidate,
  MAX_EAGER_TOKENS,
} from '../tools/disclosure.ts';
import { GUARDED_KINDS, type GuardedKind } from '../tools/guarded-paths.ts';
import { serverOfTool } from '../tools/mcp/mcp-tools.ts';
import { PRIMARY_IDS } from '../tools/primary/actions.ts';
import type { Tool } from '../tools/tool.ts';
import type { ToolScope } from './tool-scope.ts';

/** A primary action by itself is harmless: each call is judged by the item that it is about. */
export function factsOf(
  { id, traits }: Tool,
  own: readonly Tool[] = [],
): Pick<GrantedTool, 'declaredRisk' | 'builtin' | 'own'> {
  if (own.some((tool) => tool.id === id)) {
    return { declaredRisk: traits.risk, builtin: false, own: true };
  }
  return isPrimary(id)
    ? { declaredRisk: 'safe', builtin: false }
    : { declaredRisk: undefined, builtin: true };
}

/** True for `rye_execute`, `rye_fetch` and `rye_sign`. */
export function isPrimary(id: string): boolean {
  return (Object.values(PRIMARY_IDS) as readonly string[]).includes(id);
}

/** A tool with what decides whether its schema is sent up front. */
export function candidate(
  { id, description, inputSchema }: Tool,
  capabilities: readonly string[],
  facts: Pick<GrantedTool, 'declaredRisk' | 'builtin' | 'own'>,
): DisclosureCandidate & { readonly tool: Omit<GrantedTool, 'preloaded'> } {
  return {
    tool: { id, name: wireName(id), description, input_schema: inputSchema, ...facts },
    grant: grantOf(id, capabilities),
    pinned: isPrimary(id),
  };
}

/** How exactly a tool was granted: by its own id, or by a wildcard of some specificity. */
function grantOf(id: string, capabilities: readonly string[]): 'exact' | number {
  const need = { verb: 'execute', item_type: 'tool', item_id: id } as const;
  if (capabilities.includes(capabilityOf(need))) return 'exact';
  return Math.max(0, ...capabilities.filter((one) => covers([one], need)).map(specificity));
}

/** Names, in grants, the right to write guarded paths, followed by their kind; no tool has such an id. */
const GUARDS_ID = 'rye/file-system/guarded';
const TOOL_GRANT = 'rye.execute.tool.';
const MCP_GRANT = `${TOOL_GRANT}mcp.`;

/** Whether capabilities let file tools write guarded paths of a kind. */
export function liftsGuard(capabilities: readonly string[]): (kind: GuardedKind) => boolean {
  return (kind) =>
    covers(capabilities, { verb: 'execute', item_type: 'tool', item_id: `${GUARDS_ID}/${kind}` });
}

/** What is granted and allows no tool that there is: as a rule a misspelt name. A server may have tools later. */
export function idleGrants(
  capabilities: readonly string[],
  offered: readonly { readonly id: string }[],
  known: () => readonly { readonly id: string }[],
): readonly string[] {
  const idle = capabilities.filter(
    (grant) =>
      grant.startsWith(TOOL_GRANT) &&
      !grant.startsWith(MCP_GRANT) &&
      !GUARDED_KINDS.some(liftsGuard([grant])) &&
      !offered.some(({ id }) =>
        covers([grant], { verb: 'execute', item_type: 'tool', item_id: id }),
      ),
  );
  return idle.map((grant) => {
    const hint = didYouMean(grant.slice(TOOL_GRANT.length).replaceAll('.', '/'), [
      ...known().map(({ id }) => id),
      ...GUARDED_KINDS.map((kind) => `${GUARDS_ID}/${kind}`),
    ]);
    return `the permission ${grant} allows no tool that there is${hint === undefined ? '' : `. ${hint}`}`;
  });
}

/**
 * Drops MCP tools that a model would see under the name of an earlier tool: a server must not be able to end a run by
 * what it calls its tools.
 */
export function withoutCollisions<T extends DisclosureCandidate>(
  candidates: readonly T[],
): { readonly kept: readonly T[]; readonly warnings: readonly string[] } {
  const byName = new Map<string, string>();
  const warnings: string[] = [];
  const kept = candidates.filter(({ tool: { id, name } }) => {
    const other = byName.get(name);
    if (other === undefined) byName.set(name, id);
    if (other === undefined || serverOfTool(id) === undefined) return true;
    warnings.push(`the tool ${id} is dropped: it would be offered as ${name}, as ${other} is`);
    return false;
  });
  return { kept, warnings };
}

/** Why tools of an eager server are listed by name after all, one sentence for each server. */
export function deferredEager(
  candidates: readonly DisclosureCandidate[],
  upFront: ReadonlySet<string>,
): readonly string[] {
  const byServer = new Map<string, number>();
  for (const { tool, isEager } of candidates) {
    const server = serverOfTool(tool.id);
    if (server === undefined || isEager !== true || upFront.has(tool.id)) continue;
    byServer.set(server, (byServer.get(server) ?? 0) + 1);
  }
  return [...byServer].map(
    ([server, count]) =>
      `${count} tools of the MCP server ${server} are listed by name only: eager schemas have room for ${MAX_EAGER_TOKENS} tokens`,
  );
}

/** Throws `wire_name_collision` where a model would see two tools under one name. */
export function assertDistinct(
  tools: readonly { readonly id: string; readonly name: string }[],
): void {
  const byName = new Map<string, string>();
  for (const { id, name } of tools) {
    const other = byName.get(name);
    if (other !== undefined) {
      throw new RyeError(
        'wire_name_collision',
        `the tools ${other} and ${id} would both be offered as ${name}`,
        {
          hint: 'Grant only one of them, or rename one.',
        },
      );
    }
    byName.set(name, id);
  }
}

/** `tool_search` where there is something to find; finding a granted tool needs no more than that grant. */
export function searchFor(
  deferred: readonly PlannedTool[],
  unlocked: Set<string>,
  aliases: ReadonlyMap<string, string>,
): readonly Tool[] {
  const [first] = deferred;
  if (first === undefined) return [];
  const need = { verb: 'execute', item_type: 'tool', item_id: first.id } as const;
  return [{ ...createToolSearch(deferred, unlocked, aliases), need: () => need }];
}

export function definitionOf({ name, description, input_schema }: PlannedTool): ToolDefinition {
  return { name, description, input_schema };
}

/** How a thread's behavior sets the built-in tools. */
export function builtinSettings(
  {
    readLineNumbers,
    shellMetadata: metadata,
    shellMaxOutputBytes: maxOutputBytes,
    persistThreshold,
  }: Behavior,
  settings: ThreadPlan['settings'],
  { needsTools }: ProviderTraits,
): NonNullable<ToolScope['builtin']> {
  // explicit steps use results as data, which no context bounds
  const maxResultBytes = needsTools ? 0 : (persistThreshold ?? settings.result_max_bytes);
  return {
    readLineNumbers,
    metadata,
    maxResultBytes,
    ...(maxOutputBytes === undefined ? {} : { maxOutputBytes }),
  };
}
