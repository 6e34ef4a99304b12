import { stringify } from 'yaml';
import { compact } from '../core/json.ts';
import { withoutControls } from '../core/text.ts';
import { formatCost } from '../core/usage.ts';
import { pathTo } from '../log/tree.ts';
import { bounded, fence, inlineCode, quote, renderEvent } from './markdown.ts';
import type { ExportFacts, ExportSource } from './source.ts';

/** Renders a thread as a knowledge entry: frontmatter, then the readable conversation. Same log, same text. */
export function renderThreadKnowledge(facts: ExportFacts): string {
  const body = ownEvents(facts).flatMap((event) =>
    event.event_type === 'message' ? renderEvent(event) : [],
  );
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
    ...(origin ? { imported_from: originOf(origin) } : {}),
    capabilities_ref: capabilitiesRef,
    tags: ['thread', status],
  };
  // YAML escapes the other control characters itself.
  const yaml = withoutControls(stringify(metadata, { lineWidth: 0 })).replaceAll('\t', '\u{FFFD}');
  return `---\n${yaml}---`;
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
    const tokens = cost.input_tokens + cost.output_tokens;
    parts.push(
      `${cost.turns} turns, ${tokens} tokens, $${cost.spend.toFixed(6)}, ${cost.elapsed_seconds} s`,
    );
  }
  if (origin?.cost) parts.push(`Imported: ${formatCost(origin.cost)}`);
  return parts;
}

/** The path to the leaf as a readable conversation: the form of the knowledge entry, one branch, with its labels. */
export function* exportMarkdown({ tree, leafId, facts }: ExportSource): Iterable<string> {
  yield renderHead(facts).join('\n\n');
  for (const entry of pathTo(tree, leafId)) {
    const blocks = renderEvent(entry);
    const label = tree.labels.get(entry.id);
    if (label !== undefined) yield `\n\n*Label:* ${inlineCode(label)}`;
    for (const block of blocks) yield `\n\n${block}`;
  }
  for (const block of renderOutcome(facts)) yield `\n\n${block}`;
  yield '\n';
}
