import { capabilityOf } from '../core/capability.ts';
import { EXIT, ignoredWarning, RyeError } from '../core/errors.ts';
import { serverOfTool, wireName } from '../core/ids.ts';
import { didYouMean } from '../core/text.ts';
import type { Spaces } from '../items/spaces-fs.ts';
import { covers, coversTool, isExact, namedServer, specificity } from '../policy/capability.ts';
import type { GrantedTool, UnavailableGrant } from '../threads/ports.ts';
import { type DisclosureCandidate, MAX_EAGER_TOKENS } from '../tools/disclosure.ts';
import { GUARDED_KINDS, type GuardedKind } from '../tools/guarded-paths.ts';
import { PRIMARY_IDS } from '../tools/primary/actions.ts';
import type { Tool } from '../tools/tool.ts';

/** A primary action by itself is harmless: each call is judged by the item that it names. */
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
  const grant = grantOf(id, capabilities);
  return {
    tool: { id, name: wireName(id), description, input_schema: inputSchema, ...facts },
    grant,
    // a directive that names one of the few built-in tools wants it at once
    pinned: isPrimary(id) || (facts.builtin && grant === 'exact'),
  };
}

/** Returns how specific the grant of a tool is: its own id, or a wildcard of some specificity. */
function grantOf(id: string, capabilities: readonly string[]): 'exact' | number {
  const need = { verb: 'execute', item_type: 'tool', item_id: id } as const;
  if (capabilities.includes(capabilityOf(need))) return 'exact';
  return Math.max(0, ...capabilities.filter((one) => covers([one], need)).map(specificity));
}

/** Names, in grants, the right to write guarded paths, followed by their kind; no tool has such an id. */
const GUARDS_ID = 'rye/file-system/guarded';
const TOOL_GRANT = 'rye.execute.tool.';
const MCP_GRANT = `${TOOL_GRANT}mcp.`;

/** True if capabilities let file tools write guarded paths of a kind. */
export function liftsGuard(capabilities: readonly string[]): (kind: GuardedKind) => boolean {
  return (kind) => coversTool(capabilities, `${GUARDS_ID}/${kind}`);
}

/** The item tools that a thread may call. */
export interface GrantedItems {
  readonly items: readonly Tool[];
  /** One sentence for each skipped tool. */
  readonly warnings: readonly string[];
  /** Skipped tools that a capability names. */
  readonly broken: readonly (UnavailableGrant & { readonly id: string })[];
}

/** Returns the warning about a skipped tool. */
export function skippedTool(id: string, error: RyeError): string {
  return error.exitCode === EXIT.integrity
    ? ignoredWarning(error)
    : `tool ${id} skipped: ${error.message}`;
}

/** Finds grants that match no known tool, usually misspelled names. A server may add tools later. */
export function idleGrants(
  capabilities: readonly string[],
  offered: readonly { readonly id: string }[],
  known: () => readonly { readonly id: string }[],
): readonly UnavailableGrant[] {
  const idle = capabilities.filter(
    (grant) =>
      grant.startsWith(TOOL_GRANT) &&
      !grant.startsWith(MCP_GRANT) &&
      !GUARDED_KINDS.some(liftsGuard([grant])) &&
      !offered.some(({ id }) => coversTool([grant], id)),
  );
  return idle.map((grant) => {
    const hint = didYouMean(grant.slice(TOOL_GRANT.length).replaceAll('.', '/'), [
      ...known().map(({ id }) => id),
      ...GUARDED_KINDS.map((kind) => `${GUARDS_ID}/${kind}`),
    ]);
    const text = `the permission ${grant} matches no tool`;
    return { capability: grant, error: new RyeError('item_not_found', text, { hint }) };
  });
}

/** Facts about the servers that grants name. */
interface ServerFacts {
  readonly mayConnect: boolean;
  /** Returns why a file that names the server does not count; undefined if no such file is ignored. */
  readonly ignored: (server: string) => RyeError | undefined;
}

/** Returns the grants that name a server that is not configured or fails, or a tool that its server does not offer. */
export function lostServers(
  capabilities: readonly string[],
  { servers, tools }: Pick<OfferedTools, 'servers' | 'tools'>,
  { mayConnect, ignored }: ServerFacts,
): readonly UnavailableGrant[] {
  return capabilities.flatMap((capability) => {
    const server = namedServer(capability);
    if (server === undefined) return [];
    const hint = 'Check .ai/config/mcp.yaml.';
    const fault = (text: string): RyeError => new RyeError('item_not_found', text, { hint });
    const failed = servers.get(server);
    if (failed) return [{ capability, error: failed }];
    if (!servers.has(server)) {
      const error = ignored(server) ?? fault(`the MCP server ${server} is not configured`);
      return [{ capability, error }];
    }
    const isThere = tools.some(({ id }) => coversTool([capability], id));
    if (!mayConnect || !isExact(capability) || isThere) return [];
    const name = capability.slice(TOOL_GRANT.length).replaceAll('.', '/');
    return [{ capability, error: fault(`the MCP server ${server} offers no tool ${name}`) }];
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
    warnings.push(`the tool ${id} is dropped: it would share the name ${name} with ${other}`);
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

/** True if capabilities reach a tool that is a part of rye; a primary action is reached by any grant of its verb. */
export function isOffered(id: string, capabilities: readonly string[]): boolean {
  const verb = Object.entries(PRIMARY_IDS).find(([, primary]) => primary === id)?.[0];
  return verb === undefined
    ? coversTool(capabilities, id)
    : capabilities.some((one) => one === 'rye.*' || one.startsWith(`rye.${verb}.`));
}

/** Warns about files of the project whose ids belong to tools that are a part of rye: they are never used. */
export function overriddenFiles(
  spaces: Spaces,
  fixed: readonly { readonly id: string }[],
): readonly string[] {
  return fixed.flatMap(({ id }) => {
    const file = spaces.locate('tool', id, 'project');
    return file === undefined
      ? []
      : [
          `ignored: ${file} (the id ${id} is reserved for a tool that is a part of rye). Rename it.`,
        ];
  });
}

/** Words a grant that is of no use, with the hint of its error. */
export function idleWarning({ error: { message, hint } }: UnavailableGrant): string {
  return hint === undefined ? message : `${message}. ${hint}`;
}

export interface OfferedTools {
  readonly tools: readonly Tool[];
  /** Ids of tools of servers whose disclosure is `lazy`. */
  readonly lazy: ReadonlySet<string>;
  /** One sentence for each skipped server. */
  readonly warnings: readonly string[];
  /** The configured servers that are reached, each with the error of its start if it failed. */
  readonly servers: ReadonlyMap<string, RyeError | undefined>;
}
