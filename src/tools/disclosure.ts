import type { JsonObject } from '../core/json.ts';
import { escapeXml } from '../core/text.ts';

/** A granted tool as the disclosure decision sees it. */
export interface DisclosableTool {
  readonly id: string;
  /** Wire name. */
  readonly name: string;
  readonly description: string;
  readonly input_schema: JsonObject;
}

export interface DisclosureCandidate {
  readonly tool: DisclosableTool;
  /** How exactly it was granted: `exact`, or the number of id segments before the wildcard. */
  readonly grant: 'exact' | number;
  /** Offered whatever it costs, such as the primary actions; its cost counts. */
  readonly pinned: boolean;
  /** Of a server whose tools are offered up front, within a bound of their own. */
  readonly isEager?: boolean;
}

/** What the schemas of eager servers may take of a context, beyond what other tools have. */
export const MAX_EAGER_TOKENS = 8000;

export interface Disclosure {
  readonly preloaded: readonly DisclosableTool[];
  /** Listed by name; their schemas come through `tool_search`. */
  readonly deferred: readonly DisclosableTool[];
}

/** Estimated tokens of a definition: characters of name, description and schema, divided by four. */
export function definitionTokens({ name, description, input_schema }: DisclosableTool): number {
  return Math.ceil((name.length + description.length + JSON.stringify(input_schema).length) / 4);
}

/**
 * Chooses which tools are offered with their schema within `maxTokens`: pinned ones always, then exact grants, then
 * narrower wildcards before wider ones, each if it still fits; those of eager servers also within a bound of their own. None vanishes. Both lists keep the order in
 * which the tools came, so that the prompt stays byte-identical.
 */
export function chooseDisclosure(
  candidates: readonly DisclosureCandidate[],
  maxTokens: number,
): Disclosure {
  const chosen = new Set<DisclosureCandidate>();
  let used = 0;
  let eager = 0;
  for (const candidate of candidates.toSorted((a, b) => rank(b) - rank(a))) {
    const cost = definitionTokens(candidate.tool);
    const fits = candidate.pinned || used + cost <= maxTokens;
    if (fits) used += cost;
    else if (candidate.isEager === true && eager + cost <= MAX_EAGER_TOKENS) eager += cost;
    else continue;
    chosen.add(candidate);
  }
  const tools = (preloaded: boolean) =>
    candidates.filter((candidate) => chosen.has(candidate) === preloaded).map(({ tool }) => tool);
  return { preloaded: tools(true), deferred: tools(false) };
}

function rank({ grant, pinned }: DisclosureCandidate): number {
  if (pinned) return Number.MAX_SAFE_INTEGER;
  return grant === 'exact' ? Number.MAX_SAFE_INTEGER - 1 : grant;
}

/** The system text lists deferred tools within this many characters, however many there are. */
const MAX_CATALOG_CHARS = 12_000;
const MAX_SUMMARY_CHARS = 120;

/**
 * The catalog of deferred tools for the system text: wire name and first line, sorted, XML-escaped. Of very many tools
 * it lists the names alone, then as many names as fit and how many more `tool_search` finds.
 */
export function deferredCatalogue(deferred: readonly DisclosableTool[]): string {
  if (deferred.length === 0) return '';
  const sorted = deferred.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const full = sorted.map(({ name, description }) => {
    const [line = ''] = description.split('\n', 1);
    const summary = line.length > MAX_SUMMARY_CHARS ? `${line.slice(0, MAX_SUMMARY_CHARS)}…` : line;
    return `<tool name="${escapeXml(name)}">${escapeXml(summary)}</tool>`;
  });
  const names = sorted.map(({ name }) => `<tool name="${escapeXml(name)}"/>`);
  const lines = isShort(full) ? full : bounded(names);
  return `<deferred_tools>\nLoad the schema of these with tool_search before calling them.\n${lines.join('\n')}\n</deferred_tools>`;
}

function isShort(lines: readonly string[]): boolean {
  return lines.reduce((chars, line) => chars + line.length + 1, 0) <= MAX_CATALOG_CHARS;
}

function bounded(lines: readonly string[]): readonly string[] {
  let chars = 0;
  const kept = lines.filter((line) => {
    chars += line.length + 1;
    return chars <= MAX_CATALOG_CHARS;
  });
  const more = lines.length - kept.length;
  return more === 0
    ? kept
    : [...kept, `${more} more are found by tool_search with a query or a server.`];
}
