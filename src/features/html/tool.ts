import type { JsonObject } from '../../kernel/core/json.ts';
import {
  type DiffLine,
  diffOf,
  type Replacement,
  replacementsIn,
  withoutReplacements,
} from '../../kernel/core/line-diff.ts';
import {
  isErrorOutcome,
  type ToolCallBlock,
  type ToolResultMessage,
  textOf,
} from '../../kernel/core/message.ts';
import { formatSeconds } from '../../kernel/core/usage.ts';
import { shortToolName } from '../../kernel/log/entry-text.ts';
import { numberOr } from './annotations.ts';
import { subjectOf } from './call.ts';
import { childAddress, type PageContext } from './context.ts';
import { count, folded, formatBytes, gist, quiet, withRest } from './prose.ts';
import { type Html, html, NOTHING } from './safe.ts';

const PREVIEW_LINES = 40;
const SIGNS = { add: '+', remove: '−', same: ' ', gap: '…' } as const;

/** Renders a diff in color; the end of a long one opens with a click. */
function renderDiff(lines: readonly DiffLine[]): Html {
  const head = blockOf(lines.slice(0, PREVIEW_LINES));
  const rest = lines.slice(PREVIEW_LINES);
  return rest.length === 0 ? head : withRest(head, count(rest.length, 'more line'), blockOf(rest));
}

function blockOf(lines: readonly DiffLine[]): Html {
  return html`<pre class="diff"><code>${lines.map(({ kind, text }) => html`<span class="${kind}"><b>${SIGNS[kind]}</b>${text}\n</span>`)}</code></pre>`;
}

/** `+3 −1`. */
function changeCounts(lines: readonly DiffLine[]): Html {
  const of = (wanted: DiffLine['kind']): number =>
    lines.filter(({ kind }) => kind === wanted).length;
  return html`<span class="counts"><span class="add">+${of('add')}</span> <span class="remove">−${of('remove')}</span></span>`;
}

/** A call, a result, or both in one box. `marks` are at the end of its first line. */
interface Box {
  readonly call: ToolCallBlock | undefined;
  readonly result?: ToolResultMessage;
  readonly marks?: Html;
}

/** Renders a call together with its result. */
export function toolBox({ call, result, marks = NOTHING }: Box, page: PageContext): Html {
  const name = call?.name ?? result?.name ?? '';
  const subject = subjectOf(call?.input ?? {});
  const content = callContent(call, subject, result, page);
  const summary = html`<span class="name" title="${name}">${shortToolName(name)}</span><code class="gist">${gist(subject.text)}</code>${content.counts}${outcomeOf(result)}<span class="measure">${measureOf(result, page)}</span>${marks}`;
  return folded(
    'tool',
    summary,
    html`${content.body}${result && resultContent(result, call, page)}`,
    true,
  );
}

function outcomeOf(result: ToolResultMessage | undefined): Html {
  if (!result) return html`<span class="outcome">no result</span>`;
  const { outcome } = result;
  if (outcome === 'ok') return html`<span class="outcome good" title="ok">✓</span>`;
  return html`<span class="outcome ${isErrorOutcome(outcome) ? 'bad' : 'good'}">${outcome}</span>`;
}

function measureOf(result: ToolResultMessage | undefined, page: PageContext): string {
  if (!result) return '';
  const settled = page.annotations.settled.get(result.call_id);
  const text = textOf(result.content).trimEnd();
  const lines = text.split('\n').length;
  const size = lines > 1 ? count(lines, 'line') : formatBytes(text.length);
  const parts = text === '' ? [] : [size];
  if (settled) parts.unshift(formatSeconds(numberOr(settled.duration_ms) / 1000));
  return parts.join(' · ');
}

interface CallContent {
  readonly counts: Html;
  readonly body: Html;
}

function callContent(
  call: ToolCallBlock | undefined,
  subject: ReturnType<typeof subjectOf>,
  result: ToolResultMessage | undefined,
  page: PageContext,
): CallContent {
  if (!call) return { counts: NOTHING, body: NOTHING };
  const { input, malformed } = call;
  if (malformed !== undefined) {
    const body = html`<p class="quiet">The arguments were no JSON object, so the call was not made.</p>${page.code.preview(malformed)}`;
    return { counts: NOTHING, body };
  }
  const edits = changesOf(call, result);
  if (edits.length > 0) {
    const diffs = edits.map(({ before, after }) => diffOf(before, after));
    const rest = argumentList(
      without(withoutReplacements(input), [subject.name, 'content']),
      subject.text,
      page,
    );
    return { counts: changeCounts(diffs.flat()), body: html`${rest}${diffs.map(renderDiff)}` };
  }
  const isWhole = subject.text.length <= MAX_SUBJECT_CHARS && !subject.text.includes('\n');
  const named = isWhole ? without(input, [subject.name]) : input;
  return { counts: NOTHING, body: argumentList(named, subject.text, page) };
}

/** A longer subject is cut in the first line of a box, so the box shows it. */
const MAX_SUBJECT_CHARS = 60;

/** The replacements that a call makes in a file; of a new file its content. */
function changesOf(
  { name, input }: ToolCallBlock,
  result: ToolResultMessage | undefined,
): readonly Replacement[] {
  const changes = replacementsIn(input);
  const { content: after } = input;
  const { status = 'created' } = result?.data ?? {};
  if (changes.length > 0 || !/write|create/i.test(name) || typeof after !== 'string')
    return changes;
  return status === 'created' ? [{ before: '', after }] : changes;
}

function without(input: JsonObject, names: readonly string[]): JsonObject {
  return Object.fromEntries(Object.entries(input).filter(([name]) => !names.includes(name)));
}

const SHELL: ReadonlySet<string> = new Set(['command', 'cmd', 'script']);
const MAX_INLINE_CHARS = 80;

/** Short arguments on one line, then the others as blocks in the language of the file that they are meant for. */
function argumentList(input: JsonObject, subject: string, { code }: PageContext): Html {
  const short: Html[] = [];
  const blocks: Html[] = [];
  for (const [name, value = null] of Object.entries(input)) {
    const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
    if (text.length <= MAX_INLINE_CHARS && !text.includes('\n')) {
      short.push(html`<span class="argument-name">${name}</span> <code>${text}</code> `);
      continue;
    }
    const language =
      typeof value !== 'string' ? 'json' : SHELL.has(name) ? 'bash' : languageOf(subject);
    blocks.push(
      html`<div class="argument">${SHELL.has(name) ? NOTHING : html`<span class="argument-name">${name}</span>`}${code.preview(text, language)}</div>`,
    );
  }
  return html`${short.length > 0 && html`<p class="arguments">${short}</p>`}${blocks}`;
}

/** The language of a file by the extension of its path. */
function languageOf(path: string): string | undefined {
  return /\.(\w{1,12})$/.exec(path)?.[1];
}

function resultContent(
  { call_id: callId, content, data }: ToolResultMessage,
  call: ToolCallBlock | undefined,
  page: PageContext,
): Html {
  const text = textOf(content).trimEnd();
  const settled = page.annotations.settled.get(callId);
  const child = data?.['thread_id'];
  const images = content.flatMap((block) =>
    block.type === 'image' ? [page.images.show(block)] : [],
  );
  return html`<div class="output">${quiet(settled?.reason)}${resultText(text, images.length, call, page)}${images}${settled?.artifact !== undefined && quiet(`In full in the thread's ${settled.artifact}.`)}${typeof child === 'string' && html`<p class="quiet">Child thread ${childAddress(child, page)}</p>`}</div>`;
}

/** One plain sentence is a line, everything else a block. */
function resultText(
  text: string,
  images: number,
  call: ToolCallBlock | undefined,
  { code }: PageContext,
): Html {
  if (text === '') return quiet(images > 0 ? '' : 'No text.');
  const isSentence = text.length <= MAX_SENTENCE_CHARS && /^[A-Z][^\n{}<>]*\.$/.test(text);
  return isSentence ? quiet(text) : code.preview(text, outputLanguage(text, call));
}

const MAX_SENTENCE_CHARS = 200;

function outputLanguage(text: string, call: ToolCallBlock | undefined): string | undefined {
  if (/^\s*[[{]/.test(text)) return 'json';
  if (/^(?:diff --git|--- )/.test(text)) return 'diff';
  // numbered lines are no code any more
  const isSource = (call?.name ?? '').endsWith('read') && !/^\s*\d+\t/.test(text);
  return isSource && call ? languageOf(subjectOf(call.input).text) : undefined;
}
