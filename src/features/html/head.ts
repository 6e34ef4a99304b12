import { type AssistantMessage, textOf, toolCallsOf } from '../../kernel/core/message.ts';
import { timeOf } from '../../kernel/core/original.ts';
import type { ThreadRun } from '../../kernel/core/thread.ts';
import {
  addUsage,
  type Cost,
  formatCost,
  formatSeconds,
  formatSpend,
  formatTokens,
  formatUsd,
  NO_COST,
  NO_USAGE,
  type SessionCost,
  totalTokens,
  type Usage,
} from '../../kernel/core/usage.ts';
import type { ExportSource } from '../../kernel/export/source.ts';
import { isKnown, pathTo } from '../../kernel/log/tree.ts';
import { numberOr } from './annotations.ts';
import { anchorOf, childAddress, dayAndTime, type PageContext } from './context.ts';
import { count, folded } from './prose.ts';
import { type Html, html, NOTHING } from './safe.ts';

/** The name of a page: the thread's newest title, else its directive. */
export function titleOf({ source }: PageContext): string {
  const { tree, facts } = source;
  const title = tree.entries.findLast((entry) => isKnown(entry, 'title'));
  const given = title?.payload.title.trim() ?? '';
  return given === '' ? facts.document.directive : given;
}

/** Renders the head of the page: the thread, its outcome, its cost, and the integrity of its record. */
export function renderHead(page: PageContext): Html {
  const { document, description } = page.source.facts;
  const totals = totalsOf(page.source);
  const isGood = document.status === 'completed' || document.status === 'continued';
  return html`<header class="head"><p class="status"><span class="pill ${isGood ? 'good' : document.status === 'error' ? 'bad' : ''}">${document.status}</span>${recordPill(page)}${page.source.redactions !== undefined && html`<span class="pill">redacted</span>`}</p>
<h1>${titleOf(page)}</h1>${description !== '' && html`<p class="description">${description}</p>`}
${figures(totals, page)}
<p class="when">${whenLine(totals)}</p>
${notices(page)}
${folded('facts', html`<span class="name">About this thread</span>`, html`<dl>${factList(totals, page)}</dl>`)}
${children(page)}
${recordDetails(page)}
</header>
`;
}

/** Renders the outcome of the thread, below its last entry; refers to the answer that is its result. */
export function renderEnd({ source, code, prose }: PageContext): Html {
  const { status, result = '', outputs, error } = source.facts.document;
  const answer = lastAnswer(source);
  const isShown = answer !== undefined && answer.text === result.trim();
  const resultPart =
    isShown && result !== ''
      ? html`<p class="quiet">The result is the <a href="${anchorOf(answer.id)}">last answer</a>.</p>`
      : prose(result);
  return html`<section class="end" aria-label="Outcome"><h2>Outcome: ${status}</h2>${error && html`<p class="failure"><code>${error.code}</code> ${error.message}</p>`}${result !== '' && resultPart}${outputs && html`<h3>Outputs</h3>${code.whole(JSON.stringify(outputs, null, 2), 'json')}`}</section>
`;
}

function lastAnswer(
  source: PageContext['source'],
): { readonly id: string; readonly text: string } | undefined {
  for (const entry of pathTo(source.tree, source.leafId).toReversed()) {
    if (!isKnown(entry, 'message') || entry.payload.message?.role !== 'assistant') continue;
    const text = textOf(entry.payload.message.content ?? []).trim();
    if (text !== '') return { id: entry.id, text };
  }
  return undefined;
}

export function renderFoot({ source }: PageContext): Html {
  const { exportedAt, version, header } = source;
  return html`<footer class="foot"><p>Exported by rye ${version} on ${exportedAt}. This page is a copy and not signed itself; the record is checked where it lies with <code>rye verify thread ${header.thread_id}</code>.</p></footer>
`;
}

function figures(totals: Totals, { source }: PageContext): Html {
  const { cost, messages, toolCalls } = totals;
  const { elapsed_seconds: elapsed = 0 } = source.facts.document.cost ?? {};
  const list: readonly (readonly [string, string])[] = [
    [cost.turns === 1 ? 'turn' : 'turns', numberOr(cost.turns).toLocaleString('en')],
    ['messages', messages.toLocaleString('en')],
    [toolCalls === 1 ? 'tool call' : 'tool calls', toolCalls.toLocaleString('en')],
    ['tokens', formatTokens(numberOr(totalTokens(cost)))],
    ['spent', formatSpend({ ...cost, spend: numberOr(cost.spend) })],
    ['time', numberOr(elapsed) === 0 ? '' : formatSeconds(numberOr(elapsed))],
  ];
  return html`<ul class="figures">${list.filter(([, value]) => value !== '').map(([name, value]) => html`<li><b>${value}</b> ${name}</li>`)}</ul>`;
}

/** `17 Feb 2026, 10:00 – 11:20 UTC · anthropic/haiku`. */
function whenLine({ from, to, models }: Totals): string {
  const start = dayAndTime(from);
  const end = dayAndTime(to);
  const days = !start
    ? from
    : !end || (end.day === start.day && end.time === start.time)
      ? `${start.day}, ${start.time} UTC`
      : `${start.day}, ${start.time} – ${end.day === start.day ? '' : `${end.day}, `}${end.time} UTC`;
  return [days, ...models].filter((part) => part !== '').join(' · ');
}

function factList({ from, to, models, cost }: Totals, page: PageContext): readonly Html[] {
  const { header, facts, itemIntegrity } = page.source;
  const { document } = facts;
  const origin = document.imported_from;
  const link = (id: string | null | undefined): Html | undefined =>
    id === undefined || id === null || id === '' ? undefined : childAddress(id, page);
  const rows: readonly (readonly [string, Html | string | undefined | null])[] = [
    ['Thread', header.thread_id],
    ['Directive', document.directive],
    ['Model', models.length === 0 ? document.model : models.join(', ')],
    ['Started', from],
    ['Ended', to],
    ['Imported from', origin && `${origin.format} session ${origin.session_id}`],
    ['Imported', origin && document.created_at],
    ['Imported cost', origin?.cost && formatCost(origin.cost)],
    ['Runs', document.runs?.map(runLine).join(' · ')],
    ['Parent', link(document.parent_thread_id)],
    ['Continues', link(document.continuation_of)],
    ['Continued by', link(document.continuation_thread_id)],
    ['Branched from', link(header.branched_from?.thread_id)],
    ['Items', itemIntegrity === 'unverified' ? 'unsigned items were allowed' : itemIntegrity],
    ['Tokens', totalTokens(cost) === 0 ? '' : tokensOf(cost)],
  ];
  return rows.flatMap(([name, value]) =>
    value === undefined || value === null || value === ''
      ? []
      : [html`<div><dt>${name}</dt><dd>${value}</dd></div>`],
  );
}

function runLine({ run, started_at, status, cost }: ThreadRun): string {
  return `${run}: ${started_at}, ${status}, ${formatSpend(cost)}`;
}

function tokensOf(cost: Cost): string {
  return `${cost.input_tokens} in, ${cost.output_tokens} out, ${cost.cache_read_tokens} cache read, ${cost.cache_write_tokens} cache write`;
}

function children(page: PageContext): Html {
  const list = page.annotations.children;
  if (list.length === 0) return NOTHING;
  const spend = list.reduce((sum, child) => sum + (child.spend ?? 0), 0);
  const rows = list.map(
    (child) =>
      html`<tr><td>${childAddress(child.id, page)}</td><td>${child.directive}</td><td>${child.status}</td><td class="number">${child.spend === undefined ? '' : formatUsd(child.spend)}</td></tr>`,
  );
  const summary = html`<span class="name">${count(list.length, 'child thread')}</span><span class="measure">${formatUsd(spend)}</span>`;
  return folded(
    'facts',
    summary,
    html`<table><thead><tr><th>Thread</th><th>Directive</th><th>Status</th><th class="number">Spent</th></tr></thead><tbody>${rows}</tbody></table>`,
  );
}

function holds({ source }: PageContext): boolean {
  return source.checks.length > 0 && source.checks.every(({ ok }) => ok);
}

function recordPill(page: PageContext): Html {
  return holds(page)
    ? html`<span class="pill good">record verified</span>`
    : html`<span class="pill bad">record does not verify</span>`;
}

function recordDetails(page: PageContext): Html {
  const { source, annotations } = page;
  const checks = source.checks.map(
    ({ name, ok, detail }) =>
      html`<li class="${ok ? 'good' : 'bad'}"><b>${name}</b> ${ok ? 'holds' : 'does not hold'}${detail !== '' && html`: ${detail}`}</li>`,
  );
  const summary = html`<span class="name">Record</span><span class="measure">${count(annotations.checkpoints, 'checkpoint')}</span>`;
  const keys =
    annotations.keys.length === 0
      ? NOTHING
      : html`<p class="quiet">Signed with ${annotations.keys.map((key) => html`<code>${key}</code> `)}</p>`;
  return folded('facts', summary, html`<ul class="checks">${checks}</ul>${keys}`, !holds(page));
}

function notices({ source }: PageContext): Html {
  const lines: Html[] = [];
  if (source.redactions !== undefined) {
    lines.push(
      html`<p>Redacted: ${source.redactions} values were taken out before this page was made. What tools were given and what they returned, inputs, thinking, hook state and what looks like a secret is not in it.</p>`,
    );
  }
  if (source.problems.length > 0) {
    const shown = source.problems.slice(0, MAX_PROBLEMS);
    lines.push(
      html`<p>The log is damaged. This page shows what can be read of it.</p><ul>${shown.map(({ offset, message }) => html`<li>byte ${offset}: ${message}</li>`)}</ul>`,
    );
    if (shown.length < source.problems.length)
      lines.push(html`<p>${source.problems.length - shown.length} more defects.</p>`);
  }
  return lines.length === 0 ? NOTHING : html`<div class="notice" role="note">${lines}</div>`;
}

const MAX_PROBLEMS = 20;

/** The sums of a thread. */
interface Totals {
  readonly cost: Cost;
  /** Number of messages of people and of the model, on all branches. */
  readonly messages: number;
  readonly toolCalls: number;
  /** `provider/model` in order of first use. */
  readonly models: readonly string[];
  /** Times of the first and the last entry. */
  readonly from: string;
  readonly to: string;
}

/** Sums up a thread; the cost of an imported one includes that of its session. */
function totalsOf({ tree, facts }: ExportSource): Totals {
  const models = new Set<string>();
  let messages = 0;
  let toolCalls = 0;
  let turns = 0;
  let counted: Usage = NO_USAGE;
  for (const entry of tree.entries) {
    const message = isKnown(entry, 'message') ? entry.payload.message : undefined;
    if (message?.role === 'user') messages += 1;
    if (message?.role !== 'assistant') continue;
    messages += 1;
    turns += 1;
    counted = addUsage(counted, soundUsage(message));
    models.add(`${message.provider}/${message.model}`);
    toolCalls += Array.isArray(message.content) ? toolCallsOf(message).length : 0;
  }
  const { cost = NO_COST, created_at: createdAt, imported_from: origin } = facts.document;
  const total = totalOf(cost, origin?.cost);
  const times = tree.entries.map(timeOf).filter((time) => /^\d{4}-\d\d-\d\dT/.test(time));
  const least = times.reduce((first, time) => (time < first ? time : first), times[0] ?? createdAt);
  return {
    // older imports and damaged threads have no totals
    cost: totalTokens(total) === 0 ? { ...total, ...counted, turns } : total,
    messages,
    toolCalls,
    models: [...models],
    from: origin?.started_at ?? least,
    to: times.reduce((last, time) => (time > last ? time : last), times[0] ?? facts.finishedAt),
  };
}

/** The usage of an answer; a foreign log may have anything. */
function soundUsage({ usage }: AssistantMessage): Usage {
  return {
    input_tokens: numberOr(usage?.input_tokens),
    output_tokens: numberOr(usage?.output_tokens),
    cache_read_tokens: numberOr(usage?.cache_read_tokens),
    cache_write_tokens: numberOr(usage?.cache_write_tokens),
  };
}

function totalOf(own: Cost, original: SessionCost | undefined): Cost {
  if (!original) return own;
  const { turns, spend } = original;
  return { ...own, ...addUsage(own, original), turns: own.turns + turns, spend: own.spend + spend };
}
