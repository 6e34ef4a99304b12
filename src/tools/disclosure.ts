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
}

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
 * narrower wildcards before wider ones, each where it still fits. None vanishes. Both lists keep the order in
 * which the tools came, so that the prompt stays byte-identical.
 */
export function chooseDisclosure(
  candidates: readonly DisclosureCandidate[],
  maxTokens: number,
): Disclosure {
  const chosen = new Set<DisclosureCandidate>();
  let used = 0;
  for (const candidate of candidates.toSorted((a, b) => rank(b) - rank(a))) {
    const cost = definitionTokens(candidate.tool);
    if (!candidate.pinned && used + cost > maxTokens) continue;
    used += cost;
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

/** The catalogue of deferred tools for the system text: wire name and first line, sorted, XML-escaped. */
export function deferredCatalogue(deferred: readonly DisclosableTool[]): string {
  if (deferred.length === 0) return '';
  const lines = deferred
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, description }) => {
      const summary = description.split('\n', 1)[0] ?? '';
      return `<tool name="${escapeXml(name)}">${escapeXml(summary)}</tool>`;
    });
  return `<deferred_tools>\nLoad the schema of these with tool_search before calling them.\n${lines.join('\n')}\n</deferred_tools>`;
}
