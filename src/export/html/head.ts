import {
  addUsage,
  type Cost,
  formatCost,
  formatSeconds,
  formatTokens,
  formatUsd,
  type SessionCost,
  totalTokens,
} from '../../core/usage.ts';
import { isKnown } from '../../log/tree.ts';
import { numberOr } from './annotations.ts';
import { count, folded, type PageContext } from './context.ts';
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
  const isGood = document.status === 'completed' || document.status === 'continued';
  return html`<header class="head"><p class="status"><span class="pill ${isGood ? 'good' : document.status === 'error' ? 'bad' : ''}">${document.status}</span>${recordPill(page)}${page.source.redactions !== undefined && html`<span class="pill">redacted</span>`}</p>
<h1>${titleOf(page)}</h1>${description !== '' && html`<p class="description">${description}</p>`}
${figures(page)}
${notices(page)}
${folded('facts', html`<span class="name">About this thread</span>`, html`<dl>${factList(page)}</dl>`)}
${children(page)}
${recordDetails(page)}
</header>
`;
}

/** Renders the outcome of the thread, below its last entry. */
export function renderEnd({ source, code, prose }: PageContext): Html {
  const { status, result = '', outputs, error } = source.facts.document;
  return html`<section class="end" aria-label="Outcome"><h2>Outcome: ${status}</h2>${error && html`<p class="failure"><code>${error.code}</code> ${error.message}</p>`}${result !== '' && prose(result)}${outputs && html`<h3>Outputs</h3>${code.block(JSON.stringify(outputs, null, 2), 'json')}`}</section>
`;
}

export function renderFoot({ source }: PageContext): Html {
  const { exportedAt, version, header } = source;
  return html`<footer class="foot"><p>Exported by rye ${version} on ${exportedAt}. This page is a copy and not signed itself; the record is checked where it lies with <code>rye verify thread ${header.thread_id}</code>.</p></footer>
`;
}

function figures({ source }: PageContext): Html {
  const { cost: own, imported_from: origin } = source.facts.document;
  if (!own) return NOTHING;
  const cost = totalOf(own, origin?.cost);
  const list: readonly (readonly [string, string])[] = [
    ['turns', String(numberOr(cost.turns))],
    ['tokens', formatTokens(numberOr(totalTokens(cost)))],
    ['spent', formatUsd(numberOr(cost.spend))],
    ['time', formatSeconds(numberOr(cost.elapsed_seconds))],
  ];
  return html`<ul class="figures">${list.map(([name, value]) => html`<li><b>${value}</b> ${name}</li>`)}</ul>`;
}

/** The cost of an imported thread includes that of its session. */
function totalOf(own: Cost, original: SessionCost | undefined): Cost {
  if (!original) return own;
  const { turns, spend } = original;
  return { ...own, ...addUsage(own, original), turns: own.turns + turns, spend: own.spend + spend };
}

function factList({ source }: PageContext): readonly Html[] {
  const { header, facts } = source;
  const { document } = facts;
  const models = new Set(
    source.tree.entries.flatMap((entry) =>
      isKnown(entry, 'message') && entry.payload.message.role === 'assistant'
        ? [`${entry.payload.message.provider}/${entry.payload.message.model}`]
        : [],
    ),
  );
  const rows: readonly (readonly [string, string | undefined | null])[] = [
    ['Thread', header.thread_id],
    ['Directive', document.directive],
    ['Model', models.size === 0 ? document.model : [...models].join(', ')],
    ...times(facts),
    ['Parent', document.parent_thread_id],
    ['Continues', document.continuation_of],
    ['Continued by', document.continuation_thread_id],
    ['Branched from', header.branched_from?.thread_id],
    [
      'Items',
      source.itemIntegrity === 'unverified' ? 'unsigned items were allowed' : source.itemIntegrity,
    ],
    ['Tokens', document.cost && tokensOf(totalOf(document.cost, document.imported_from?.cost))],
  ];
  return rows.flatMap(([name, value]) =>
    value === undefined || value === null || value === ''
      ? []
      : [html`<div><dt>${name}</dt><dd>${value}</dd></div>`],
  );
}

/** The times of a thread; those of the session that it was imported from, if rye did not continue it. */
function times({
  document,
  finishedAt,
}: PageContext['source']['facts']): readonly (readonly [string, string | undefined])[] {
  const { created_at: createdAt, imported_from: origin, cost } = document;
  if (!origin)
    return [
      ['Begun', createdAt],
      ['Ended', finishedAt],
    ];
  return [
    ['Begun', origin.started_at ?? createdAt],
    ['Ended', cost?.turns === 0 ? (origin.ended_at ?? finishedAt) : finishedAt],
    ['Imported', `${createdAt}, ${origin.format} session ${origin.session_id}`],
    ['Imported cost', origin.cost && formatCost(origin.cost)],
  ];
}

function tokensOf(cost: Cost): string {
  return `${cost.input_tokens} in, ${cost.output_tokens} out, ${cost.cache_read_tokens} cache read, ${cost.cache_write_tokens} cache write`;
}

function children({ annotations }: PageContext): Html {
  const list = annotations.children;
  if (list.length === 0) return NOTHING;
  const spend = list.reduce((sum, child) => sum + (child.spend ?? 0), 0);
  const rows = list.map(
    (child) =>
      html`<tr><td><code>${child.id}</code></td><td>${child.directive}</td><td>${child.status}</td><td class="number">${child.spend === undefined ? '' : formatUsd(child.spend)}</td></tr>`,
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
      html`<p>Redacted: ${source.redactions} values were taken out before this page was made. What tools were given and what they returned, thinking, hook state and what looks like a secret is not in it.</p>`,
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
