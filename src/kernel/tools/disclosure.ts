import { wireName } from '../core/ids.ts';
import { type JsonObject, toText } from '../core/json.ts';
import { textOf } from '../core/message.ts';
import { didYouMean, escapeXml, headChars } from '../core/text.ts';
import {
  builtinTool,
  errorOutput,
  READING_TRAITS,
  type Tool,
  type ToolOutput,
  textOutput,
} from './tool.ts';

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
  /** Precision of the grant: `exact`, or the number of id segments before the wildcard. */
  readonly grant: 'exact' | number;
  /** Always offered, such as the primary actions; its cost counts. */
  readonly pinned: boolean;
  /** True for tools of a server that offers them up front, within a separate bound. */
  readonly isEager?: boolean;
}

/** Maximum tokens of the schemas of eager servers, in addition to the schemas of other tools. */
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
 * narrower wildcards before wider ones, each if it still fits; tools of eager servers also within a separate bound. None vanishes. Both lists keep the order in
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
export function deferredCatalog(deferred: readonly DisclosableTool[]): string {
  if (deferred.length === 0) return '';
  const sorted = deferred.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const full = sorted.map(({ name, description }) => {
    const [line = ''] = description.split('\n', 1);
    const summary =
      line.length > MAX_SUMMARY_CHARS ? `${headChars(line, MAX_SUMMARY_CHARS)}…` : line;
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

export const TOOL_SEARCH_ID = 'tool_search';
const DEFAULT_LIMIT = 5;

/**
 * `tool_search` finds deferred tools by wire name, id, words or MCP server, unlocks them for the run and returns their
 * schemas. `unlocked` holds canonical ids; the run owns it and its gate reads it. `aliases` are the names that the model
 * knows them by. `data`: `tools` (wire names).
 */
export function createToolSearch(
  deferred: readonly DisclosableTool[],
  unlocked: Set<string>,
  aliases: ReadonlyMap<string, string> = new Map(),
): Tool {
  return builtinTool({
    id: TOOL_SEARCH_ID,
    description:
      'Loads the schemas of deferred tools, by names, by words of a query or by their server. A deferred tool can be called afterwards.',
    properties: {
      names: { type: 'array', items: { type: 'string' }, description: 'Names as listed.' },
      query: { type: 'string', description: 'Words to look for in names and descriptions.' },
      server: { type: 'string', description: 'An MCP server: only its tools are looked at.' },
      limit: {
        type: 'integer',
        minimum: 1,
        maximum: 50,
        description: `Default ${DEFAULT_LIMIT}.`,
      },
    },
    traits: { ...READING_TRAITS, timeout_seconds: 10 },
    run({ names: wanted = [], query = '', server, limit = DEFAULT_LIMIT }) {
      const words = wordsOf(query);
      if (wanted.length === 0 && words.length === 0 && server === undefined) {
        return errorOutput('Provide names, query or server.', { code: 'invalid_input' });
      }
      const named = deferred.filter(({ name }) =>
        wanted.some((want) => wireName(want) === name || want === aliases.get(name)),
      );
      const searched =
        server === undefined
          ? deferred
          : deferred.filter(({ id }) => id.startsWith(`mcp/${server}/`));
      const isWhole = server !== undefined && words.length === 0 && wanted.length === 0;
      const ranked = searched
        .map((tool) => ({ tool, score: isWhole ? 1 : scoreOf(tool, words) }))
        .filter(({ tool, score }) => score > 0 && !named.includes(tool))
        .toSorted((a, b) => b.score - a.score)
        .slice(0, limit);
      const found = [...named, ...ranked.map(({ tool }) => tool)];
      if (found.length === 0) return noneFound(wanted[0] ?? words[0] ?? '', searched);
      for (const { id } of found) unlocked.add(id);
      const shown = found.map((tool) => ({ ...tool, name: aliases.get(tool.name) ?? tool.name }));
      return textOutput(render(shown), { tools: found.map(({ name }) => name) });
    },
  });
}

/**
 * Makes a program's tool the `tool_search` of a thread: what it names is unlocked and its schemas are returned, as far as it
 * is among `deferred`.
 */
export function hostToolSearch(
  host: Tool,
  deferred: readonly DisclosableTool[],
  unlocked: Set<string>,
  aliases: ReadonlyMap<string, string> = new Map(),
): Tool {
  const shown = deferred.map((tool) => ({ ...tool, name: aliases.get(tool.name) ?? tool.name }));
  const listed = shown.map(({ id, name, description }) => ({ id, name, description }));
  return {
    ...host,
    id: TOOL_SEARCH_ID,
    execute: async (input, context) => {
      const output = await host.execute(input, { ...context, deferred: listed });
      if (output.is_error) return output;
      const { tools: named, ...data } = output.data ?? {};
      const wanted = Array.isArray(named) ? named : [];
      const found = deferred.filter(
        ({ id, name }, at) =>
          wanted.includes(id) || wanted.includes(name) || wanted.includes(shown[at]?.name),
      );
      if (found.length === 0) return noneFound(toText(wanted[0] ?? ''), deferred);
      for (const { id } of found) unlocked.add(id);
      const schemas = render(shown.filter(({ id }) => found.some((one) => one.id === id)));
      // a plain object has no words for the model
      const own = textOf(output.content) === JSON.stringify(output.data) ? [] : output.content;
      return {
        content: [...own, { type: 'text', text: schemas }],
        is_error: false,
        data: { ...data, tools: found.map(({ name }) => name) },
      };
    },
  };
}

function noneFound(wanted: string, searched: readonly DisclosableTool[]): ToolOutput {
  const near = didYouMean(
    wanted,
    searched.map(({ name }) => name),
  );
  return errorOutput(['No deferred tool matches.', near].filter(Boolean).join(' '), {
    code: 'item_not_found',
  });
}

function wordsOf(text: string): string[] {
  return text
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== '');
}

/** Words in the name weigh twice. */
function scoreOf({ name, description }: DisclosableTool, words: readonly string[]): number {
  const inName = new Set(wordsOf(name.replaceAll('_', ' ')));
  const all = description.toLowerCase();
  let score = 0;
  for (const word of words) {
    if (inName.has(word)) score += 2;
    else if (name.toLowerCase().includes(word) || all.includes(word)) score += 1;
  }
  return score;
}

function render(tools: readonly DisclosableTool[]): string {
  const blocks = tools.map(({ name, description, input_schema: schema }) => {
    const json = JSON.stringify(schema).replaceAll('<', '\\u003c');
    return `<tool name="${escapeXml(name)}">\n<description>${escapeXml(description)}</description>\n<input_schema>${json}</input_schema>\n</tool>`;
  });
  return `<tool_search_results>\n${blocks.join('\n')}\n</tool_search_results>`;
}
