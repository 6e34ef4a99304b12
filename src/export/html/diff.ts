import type { DiffLine } from '../line-diff.ts';
import { count, withRest } from './prose.ts';
import { type Html, html } from './safe.ts';

const PREVIEW_LINES = 40;
const SIGNS = { add: '+', remove: '−', same: ' ', gap: '…' } as const;

/** Renders a diff in color; the end of a long one opens with a click. */
export function renderDiff(lines: readonly DiffLine[]): Html {
  const head = blockOf(lines.slice(0, PREVIEW_LINES));
  const rest = lines.slice(PREVIEW_LINES);
  return rest.length === 0 ? head : withRest(head, count(rest.length, 'more line'), blockOf(rest));
}

function blockOf(lines: readonly DiffLine[]): Html {
  return html`<pre class="diff"><code>${lines.map(({ kind, text }) => html`<span class="${kind}"><b>${SIGNS[kind]}</b>${text}\n</span>`)}</code></pre>`;
}

/** `+3 −1`. */
export function changeCounts(lines: readonly DiffLine[]): Html {
  const of = (wanted: DiffLine['kind']): number =>
    lines.filter(({ kind }) => kind === wanted).length;
  return html`<span class="counts"><span class="add">+${of('add')}</span> <span class="remove">−${of('remove')}</span></span>`;
}
