import { stringify } from 'yaml';
import type { LogEvent } from '../core/events.ts';
import { compact } from '../core/json.ts';
import { withoutControls } from '../core/text.ts';
import type { ThreadRun } from '../core/thread.ts';
import { formatCost, totalTokens } from '../core/usage.ts';
import { isKnown, pathTo } from '../log/tree.ts';
import { bounded, fence, inlineCode, quote, renderEvent } from './markdown.ts';
import type { ExportFacts, ExportSource } from './source.ts';

/** Words that YAML reads as something else than a text. */
const RESERVED = /^(?:true|false|null|yes|no|on|off|y|n)$/i;
/**
 * Texts that mean themselves, such as a path in a hidden folder: a colon or a space is inside, never at an end, and never
 * one after the other.
 */
const PLAIN = /^(?:\.[a-z]+\/)?[A-Za-z](?:[\w./-]|:(?=[\w./-])| (?=[\w./-]))*$/;
const TIMESTAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const VERSION = /^\d{1,9}\.\d{1,9}\.\d{1,9}$/;
/** Texts that need no escapes between double quotes. */
const QUOTABLE = /^[^"'\\\p{C}\p{Z}]+(?: [^"'\\\p{C}\p{Z}]+)+$/u;

/**
 * Returns the members as block YAML, as the library writes them: the members that it would write without quotes and escapes,
 * as nearly all of an export are, cost a hundredth of its time.
 */
export function plainYaml(members: object): string {
  return Object.entries(members)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => memberText(key, value) ?? stringify({ [key]: value }, { lineWidth: 0 }))
    .join('');
}

/** Returns undefined for what only the library can write. */
function memberText(key: string, value: unknown): string | undefined {
  const text = scalarText(value);
  if (text !== undefined) return `${key}: ${text}\n`;
  if (typeof value !== 'object' || value === null) return undefined;
  const lines = Array.isArray(value)
    ? value.map((item) => prefixed('- ', scalarText(item)))
    : Object.entries(value).map(([name, member]) =>
        PLAIN.test(name) && !RESERVED.test(name)
          ? prefixed(`${name}: `, scalarText(member))
          : undefined,
      );
  if (lines.length === 0 || lines.includes(undefined)) return undefined;
  return `${key}:\n${lines.map((line) => `  ${line}\n`).join('')}`;
}

function prefixed(prefix: string, text: string | undefined): string | undefined {
  return text === undefined ? undefined : prefix + text;
}

function scalarText(value: unknown): string | undefined {
  if (typeof value === 'boolean') return String(value);
  if (typeof value === 'number') {
    return Number.isFinite(value) && !Object.is(value, -0) ? String(value) : undefined;
  }
  if (typeof value !== 'string') return undefined;
  if (
    (PLAIN.test(value) && !RESERVED.test(value)) ||
    TIMESTAMP.test(value) ||
    VERSION.test(value)
  ) {
    return value;
  }
  return QUOTABLE.test(value) && value.includes(': ') ? `"${value}"` : undefined;
}

/** Renders a thread as a knowledge entry: frontmatter, then the readable conversation. Same log, same text. */
export function renderThreadKnowledge(facts: ExportFacts): string {
  const body = ownEvents(facts).flatMap((event) => {
    if (isKnown(event, 'run_started')) return renderRun(event, facts);
    return event.event_type === 'message' ? renderEvent(event) : [];
  });
  const blocks = [...renderHead(facts), ...body, ...renderOutcome(facts)];
  // appended to the last block, not to the whole text, which may be megabytes and would be copied
  return [...blocks.slice(0, -1), `${blocks.at(-1) ?? ''}\n`].join('\n\n');
}

/** The beginning of the entry of a thread that is running: it is unsigned and has no end yet. */
export function renderLiveHead(facts: Omit<ExportFacts, 'events' | 'finishedAt'>): string {
  return `${renderHead(facts).join('\n\n')}\n`;
}

type Facts = Omit<ExportFacts, 'events' | 'finishedAt'> & Partial<Pick<ExportFacts, 'finishedAt'>>;

/** Frontmatter, title and description, as blocks. */
export function renderHead(facts: Facts): readonly string[] {
  const { document, description } = facts;
  const head = [frontmatter(facts), `# ${document.directive}`];
  return description === '' ? head : [...head, quote(description)];
}

/** A continuation begins with what it was given of its predecessor, whose own export has that. */
function ownEvents({ document, events }: ExportFacts): ExportFacts['events'] {
  if (document.continuation_of === undefined) return events;
  return events.slice(events.findIndex(({ event_type }) => event_type === 'thread_continued') + 1);
}

function frontmatter({ document, description, capabilitiesRef, finishedAt }: Facts): string {
  const {
    thread_id,
    directive,
    status,
    model,
    created_at,
    parent_thread_id,
    continuation_of,
    continuation_thread_id: continued_by,
    cost,
    outputs,
    imported_from: origin,
    runs,
  } = document;
  const metadata = {
    name: thread_id.slice(thread_id.lastIndexOf('/') + 1),
    title: `${directive}: ${description === '' ? thread_id : description}`,
    entry_type: 'thread_transcript',
    version: '1.0.0',
    thread_id,
    directive,
    status,
    model,
    created_at,
    ...(finishedAt === undefined ? {} : { finished_at: finishedAt }),
    ...(cost ? { duration_seconds: cost.elapsed_seconds, cost: { ...cost } } : {}),
    ...(parent_thread_id === null ? {} : { parent: parent_thread_id }),
    ...(continuation_of === undefined ? {} : { continuation_of }),
    ...(continued_by === undefined ? {} : { continuation_thread_id: continued_by }),
    ...(outputs ? { outputs } : {}),
    ...(runs ? { runs: runs.map(runFacts) } : {}),
    ...(origin ? { imported_from: originOf(origin) } : {}),
    capabilities_ref: capabilitiesRef,
    tags: ['thread', status],
  };
  // YAML escapes the other control characters itself.
  const yaml = withoutControls(plainYaml(metadata)).replaceAll('\t', '\u{FFFD}');
  return `---\n${yaml}---`;
}

function runFacts({ run, reason, started_at, status, cost }: ThreadRun): object {
  const { turns, spend } = cost;
  return { run, reason, started_at, status, turns, spend };
}

type RunStarted = Extract<LogEvent, { readonly event_type: 'run_started' }>;

/** Renders the beginning of a run after the first one, with its end where thread.json has that. */
function renderRun({ payload, timestamp }: RunStarted, { document }: Facts): readonly string[] {
  const { run: number, reason } = payload;
  const run = document.runs?.find((one) => one.run === number);
  const end = run ? [run.status, turnsText(run.cost.turns), `$${run.cost.spend.toFixed(6)}`] : [];
  const facts = [inlineCode(reason), `started ${inlineCode(timestamp)}`, ...end];
  return [`## Run ${Math.trunc(number)}`, facts.join(', ')];
}

function turnsText(turns: number): string {
  return turns === 1 ? '1 turn' : `${turns} turns`;
}

function originOf({ format, session_id, started_at, ended_at, cost }: Origin): object {
  return compact({ format, session_id, started_at, ended_at, cost });
}

type Origin = NonNullable<Facts['document']['imported_from']>;

/** Renders the outcome and the cost of a thread, as blocks. */
export function renderOutcome({ document }: Facts): readonly string[] {
  const { status, result = '', outputs, error, cost, imported_from: origin } = document;
  const parts = [`## Outcome: ${status}`];
  if (error) parts.push(quote(`${error.code}: ${error.message}`));
  if (result !== '') parts.push(fence(bounded(result), 'text'));
  if (outputs) parts.push('Outputs:', fence(JSON.stringify(outputs, null, 2), 'json'));
  if (cost) {
    const tokens = totalTokens(cost);
    parts.push(
      `${turnsText(cost.turns)}, ${tokens} tokens, $${cost.spend.toFixed(6)}, ${cost.elapsed_seconds} s`,
    );
  }
  if (origin?.cost) parts.push(`Imported: ${formatCost(origin.cost)}`);
  return parts;
}

/** The path to the leaf as a readable conversation: the form of the knowledge entry, one branch, with its labels. */
export function* exportMarkdown({ tree, leafId, facts, events }: ExportSource): Iterable<string> {
  yield renderHead(facts).join('\n\n');
  const starts = events.filter((event) => isKnown(event, 'run_started'));
  let last = 0;
  for (const entry of pathTo(tree, leafId)) {
    // a run without an entry on this path is omitted
    const run = starts.findLast(({ seq }) => seq > last && seq < entry.seq);
    for (const block of run ? renderRun(run, facts) : []) yield `\n\n${block}`;
    last = entry.seq;
    const blocks = renderEvent(entry);
    const label = tree.labels.get(entry.id);
    if (label !== undefined) yield `\n\n*Label:* ${inlineCode(label)}`;
    for (const block of blocks) yield `\n\n${block}`;
  }
  for (const block of renderOutcome(facts)) yield `\n\n${block}`;
  yield '\n';
}
