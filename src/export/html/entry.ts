import type { EventPayloads } from '../../core/events.ts';
import type { JsonValue } from '../../core/json.ts';
import {
  type AssistantBlock,
  type AssistantMessage,
  type ContentBlock,
  isErrorOutcome,
  type ToolCallBlock,
  type ToolResultMessage,
  textOf,
  type UserMessage,
} from '../../core/message.ts';
import { timeOf } from '../../core/original.ts';
import { formatSeconds, formatTokens, formatUsd } from '../../core/usage.ts';
import { isKnown, type TreeEntry } from '../../log/tree.ts';
import { numberOr } from './annotations.ts';
import { anchorOf, count, folded, type PageContext, renderTime } from './context.ts';
import { type Html, html, NOTHING } from './safe.ts';

/** The presentation of an entry: its class, the speaker, and the body. */
interface Shape {
  readonly look: 'user' | 'assistant' | 'tool_result' | 'injected' | 'summary' | 'setting';
  readonly who: string;
  readonly body: Html;
}

/** Renders one entry of the tree with its label, the model's view of it, and the log's notes about it. */
export function renderEntry(entry: TreeEntry, page: PageContext): Html {
  const { look, who, body } = soundShape(entry, page);
  const isHidden = !page.active.has(entry.id);
  // the summary line of a folded result replaces the heading
  const heading =
    look === 'tool_result'
      ? NOTHING
      : html`<header><span class="who">${who}</span>${marksOf(entry, page)}</header>`;
  return html`<article class="entry ${look}" id="entry-${entry.id}" tabindex="-1"${isHidden && html` hidden`}>${heading}${body}${forkLinks(entry, page)}${notesBehind(entry.id, page)}</article>
`;
}

/** The label, what a reader should know before reading, and the address. */
function marksOf(entry: TreeEntry, page: PageContext): Html {
  const label = page.source.tree.labels.get(entry.id);
  return html`${label !== undefined && html`<span class="label">${label}</span>`}${tagsOf(entry, page)}<a class="anchor" href="${anchorOf(entry.id)}">${renderTime(timeOf(entry))}</a>`;
}

/** Renders an entry; shows its raw data if the payload does not match its type, as a foreign log may have it. */
function soundShape(entry: TreeEntry, page: PageContext): Shape {
  try {
    return shapeOf(entry, page);
  } catch {
    return { look: 'setting', who: entry.event_type, body: asData(entry, page) };
  }
}

function shapeOf(entry: TreeEntry, page: PageContext): Shape {
  if (isKnown(entry, 'message')) return messageShape(entry, page);
  if (isKnown(entry, 'custom_message')) return customMessageShape(entry.payload, page);
  if (isKnown(entry, 'compaction')) return compactionShape(entry.payload, page);
  if (isKnown(entry, 'branch_summary')) {
    const { summary, from_id: from } = entry.payload;
    const body = html`${page.prose(summary)}<p class="quiet">It summarizes <a href="${anchorOf(from)}">an abandoned branch</a>.</p>`;
    return { look: 'summary', who: 'Another branch, summarized', body };
  }
  return { look: 'setting', ...settingShape(entry, page) };
}

function messageShape(
  entry: TreeEntry & { readonly payload: EventPayloads['message'] },
  page: PageContext,
): Shape {
  const { message, turn } = entry.payload;
  if (message.role === 'tool_result') {
    return { look: 'tool_result', who: '', body: toolResult(message, marksOf(entry, page), page) };
  }
  if (message.role === 'user') {
    return { look: 'user', who: 'User', body: userMessage(message, page) };
  }
  const who = turn === undefined ? 'Assistant' : `Assistant, turn ${turn}`;
  return { look: 'assistant', who, body: assistantMessage(message, entry.id, page) };
}

function customMessageShape(
  { custom_type: type, content, display }: EventPayloads['custom_message'],
  { prose }: PageContext,
): Shape {
  const who = `Injected: ${type}`;
  if (display) return { look: 'injected', who, body: prose(content) };
  const body = html`<p class="quiet">Meant for the model only: ${count(content.length, 'character')} that this page does not show.</p>`;
  return { look: 'setting', who, body };
}

function compactionShape(
  { summary, tokens_before: tokens }: EventPayloads['compaction'],
  { prose }: PageContext,
): Shape {
  const body = html`<p class="quiet">At ${formatTokens(numberOr(tokens))} tokens the older part of the conversation gave way to this summary.</p>${folded('thinking', html`<span class="name">Summary</span>`, prose(summary))}`;
  return { look: 'summary', who: 'Compacted', body };
}

type Setting = Pick<Shape, 'who' | 'body'>;

function settingShape(entry: TreeEntry, page: PageContext): Setting {
  if (isKnown(entry, 'system_prompt')) return systemPrompt(entry.payload, page);
  if (isKnown(entry, 'context_injected')) return injectedContext(entry.payload, page);
  if (isKnown(entry, 'context_edit')) return contextEdit(entry.payload, page);
  if (isKnown(entry, 'model_change')) {
    return { who: 'Model', body: quietLine(`${entry.payload.provider}/${entry.payload.model}`) };
  }
  if (isKnown(entry, 'thinking_change'))
    return { who: 'Thinking', body: quietLine(entry.payload.level) };
  if (isKnown(entry, 'title')) return { who: 'Title', body: quietLine(entry.payload.title) };
  if (isKnown(entry, 'label')) {
    const { target_id: target, label } = entry.payload;
    const named = html`<p class="quiet">${label === null || label === '' ? 'Cleared' : `“${label}”`} on <a href="${anchorOf(target)}">an entry</a>.</p>`;
    return { who: 'Label', body: named };
  }
  if (isKnown(entry, 'rule_injection')) {
    return {
      who: 'Rules told',
      body: quietLine(entry.payload.rules.map(({ name }) => name).join(', ')),
    };
  }
  if (isKnown(entry, 'leaf')) return leafMove(entry.payload);
  const who = isKnown(entry, 'custom') ? `State: ${entry.payload.custom_type}` : entry.event_type;
  return { who, body: asData(entry, page) };
}

function asData({ payload }: TreeEntry, { code }: PageContext): Html {
  const summary = html`<span class="name">Data</span>`;
  return folded('data', summary, code.block(JSON.stringify(payload, null, 2), 'json'));
}

function quietLine(text: string): Html {
  return html`<p class="quiet">${text}</p>`;
}

function leafMove({ target_id: target }: EventPayloads['leaf']): Setting {
  if (target === null)
    return { who: 'Branch', body: html`<p class="quiet">Back to the start.</p>` };
  const body = html`<p class="quiet">Back to <a href="${anchorOf(target)}">an earlier entry</a>.</p>`;
  return { who: 'Branch', body };
}

function systemPrompt(
  { text, tools }: EventPayloads['system_prompt'],
  { code }: PageContext,
): Setting {
  const names = tools.flatMap(({ name }) => (typeof name === 'string' ? [name] : [])).join(', ');
  const summary = html`<span class="name">Instructions</span><span class="measure">${count(text.length, 'character')}, ${count(tools.length, 'tool')}</span>`;
  const body = [
    code.block(text, 'markdown'),
    names === '' ? NOTHING : html`<p class="quiet">Tools: ${names}</p>`,
  ];
  return { who: 'System prompt', body: folded('data', summary, body) };
}

function injectedContext(
  { position, blocks }: EventPayloads['context_injected'],
  { code }: PageContext,
): Setting {
  const body = blocks.map(({ id, source, content }) => {
    const summary = html`<span class="name">${id}</span><span class="measure">${source}, ${position}</span>`;
    return folded('data', summary, code.block(content, 'markdown'));
  });
  return { who: 'Context', body: html`${body}` };
}

function contextEdit(
  { target_id: target, action, content, reason }: EventPayloads['context_edit'],
  { code }: PageContext,
): Setting {
  const link = html`<a href="${anchorOf(target)}">an entry</a>`;
  const what = html`<p class="quiet">From here on the model ${action === 'omit' ? html`no longer sees ${link}` : html`sees another text in place of ${link}`}.${reason !== undefined && html` ${reason}`}</p>`;
  const body =
    content === undefined
      ? what
      : html`${what}${folded('data', html`<span class="name">Text for the model</span>`, code.block(content))}`;
  return { who: 'Context edit', body };
}

/** Returns the notes that precede an entry. */
function tagsOf(entry: TreeEntry, { active, inContext, edits }: PageContext): readonly Html[] {
  const tags: Html[] = [];
  const tag = (text: string, title: string): void => {
    tags.push(html`<span class="tag" title="${title}">${text}</span>`);
  };
  if (isKnown(entry, 'message') && entry.payload.message.role === 'assistant') {
    const { stop_reason: reason } = entry.payload.message;
    if (reason === 'aborted') tag('cut off', 'a person, a rule or a limit ended this answer');
    else if (reason !== 'end' && reason !== 'tool_calls') tag(reason, 'why the model stopped');
  }
  const edit = edits.get(entry.id);
  if (edit)
    tag(
      edit.action === 'omit' ? 'hidden from the model' : 'edited for the model',
      edit.reason ?? '',
    );
  if (isRead(entry) && active.has(entry.id) && !inContext.has(entry.id) && !edit) {
    tag('no longer sent', 'a summary or a newer answer replaces it: the model no longer sees it');
  }
  return tags;
}

/** True for a result: its call already has the tag. */
function isRead(entry: TreeEntry): boolean {
  if (isKnown(entry, 'message')) return entry.payload.message.role !== 'tool_result';
  return isKnown(entry, 'custom_message') && entry.payload.display;
}

function forkLinks(entry: TreeEntry, { forks }: PageContext): Html {
  const ways = forks.get(entry.id);
  if (!ways) return NOTHING;
  const links = ways.map(
    ({ entry: next, kind, text, active }) =>
      html`<li${active && html` class="open"`}><a href="${anchorOf(next.id)}">${text === '' ? kind : text}</a></li>`,
  );
  return html`<nav class="forks" aria-label="Branches"><p>${ways.length} branches from here</p><ul>${links}</ul></nav>`;
}

/** The log's notes that follow an entry; '' for those before the first. */
export function notesBehind(entryId: string, { annotations }: PageContext): Html {
  const notes = annotations.notes.get(entryId);
  if (!notes) return NOTHING;
  const items = notes.map(({ tone, text }) => html`<li class="${tone}">${text}</li>`);
  return html`<ul class="notes">${items}</ul>`;
}

/** Renders a message of a person. */
function userMessage({ content }: UserMessage, page: PageContext): Html {
  return html`${content.map((block) => contentBlock(block, page))}`;
}

/** Renders an answer of the model: text, thinking, calls and cost. */
function assistantMessage(message: AssistantMessage, entryId: string, page: PageContext): Html {
  const blocks = message.content.map((block) => answerBlock(block, page));
  return html`${blocks}${costLine(message, entryId, page)}`;
}

function contentBlock(block: ContentBlock, { prose }: PageContext): Html {
  return block.type === 'text' ? prose(block.text) : imageNote(block);
}

function imageNote({ media_type: type, data }: Extract<ContentBlock, { type: 'image' }>): Html {
  return html`<p class="image">image (${type}, ${formatBytes((data.length * 3) / 4)}), not part of this page</p>`;
}

function answerBlock(block: AssistantBlock, page: PageContext): Html {
  switch (block.type) {
    case 'text':
      return block.text.trim() === '' ? NOTHING : page.prose(block.text);
    case 'thinking': {
      const isRedacted = block.text === '' && block.redacted !== undefined;
      if (block.text.trim() === '' && !isRedacted) return NOTHING;
      const summary = html`<span class="name">Thinking</span><span class="gist">${gist(block.text)}</span>`;
      if (!isRedacted) return folded('thinking', summary, page.prose(block.text));
      return html`<p class="quiet">The provider kept some thinking to itself.</p>`;
    }
    case 'tool_call':
      return toolCall(block, page);
  }
}

function toolCall({ name, input, malformed }: ToolCallBlock, { code }: PageContext): Html {
  const first = Object.values(input).find((value) => typeof value === 'string');
  const summary = html`<span class="name">${name}</span><code class="gist">${gist(first ?? malformed ?? '')}</code>`;
  const body =
    malformed === undefined
      ? argumentList(input, code)
      : [
          html`<p class="quiet">The arguments were no JSON object, so the call was not made.</p>`,
          code.block(malformed),
        ];
  return folded('call', summary, body);
}

function argumentList(input: ToolCallBlock['input'], code: PageContext['code']): readonly Html[] {
  const entries = Object.entries(input);
  if (entries.length === 0) return [html`<p class="quiet">No arguments.</p>`];
  const file = [input['path'], input['file_path']].find((value) => typeof value === 'string');
  return entries.map(([name, value = null]) => {
    const shown = argumentText(name, value, file);
    return html`<div class="argument"><span class="argument-name">${name}</span>${code.block(shown.text, shown.language)}</div>`;
  });
}

const SHELL: ReadonlySet<string> = new Set(['command', 'cmd', 'script']);

/** Texts as they are, in the language of the file that they are meant for; all else as JSON. */
function argumentText(
  name: string,
  value: JsonValue,
  file: string | undefined,
): { readonly text: string; readonly language?: string } {
  if (typeof value !== 'string') return { text: JSON.stringify(value, null, 2), language: 'json' };
  if (SHELL.has(name)) return { text: value, language: 'bash' };
  const extension = value.includes('\n') ? /\.(\w{1,12})$/.exec(file ?? '')?.[1] : undefined;
  return extension === undefined ? { text: value } : { text: value, language: extension };
}

/** Renders a tool result, folded below one line; `marks` are at the end of that line. */
function toolResult(message: ToolResultMessage, marks: Html, page: PageContext): Html {
  const { name, outcome, call_id: callId, content } = message;
  const text = textOf(content);
  const settled = page.annotations.settled.get(callId);
  const isError = isErrorOutcome(outcome);
  const time = settled && formatSeconds(numberOr(settled.duration_ms) / 1000);
  const summary = html`<span class="name">${name}</span><span class="outcome ${isError ? 'bad' : 'good'}">${outcome}</span><span class="gist">${gist(text)}</span><span class="measure">${[time, formatBytes(text.length)].filter((part) => part !== undefined).join(' · ')}</span>${marks}`;
  const body = [
    settled?.reason === undefined ? NOTHING : html`<p class="quiet">${settled.reason}</p>`,
    text === '' ? html`<p class="quiet">No text.</p>` : page.code.block(text, languageOf(text)),
    ...content.flatMap((block) => (block.type === 'image' ? [imageNote(block)] : [])),
    settled?.artifact === undefined
      ? NOTHING
      : html`<p class="quiet">In full in the thread's ${settled.artifact}.</p>`,
  ];
  return folded('result', summary, body, isError);
}

function languageOf(text: string): string | undefined {
  if (/^\s*[[{]/.test(text)) return 'json';
  return /^(?:diff --git|--- )/.test(text) ? 'diff' : undefined;
}

const COUNTS = [
  ['input_tokens', 'in'],
  ['output_tokens', 'out'],
  ['cache_read_tokens', 'cache read'],
  ['cache_write_tokens', 'cache write'],
] as const;

function costLine(message: AssistantMessage, entryId: string, { annotations }: PageContext): Html {
  const cost = annotations.costs.get(entryId);
  const usage: Partial<AssistantMessage['usage']> = cost?.usage ?? message.usage ?? {};
  const counts = COUNTS.flatMap(([member, name]) => {
    const amount = numberOr(usage[member]);
    return amount === 0 ? [] : [`${formatTokens(amount)} ${name}`];
  });
  if (cost) counts.push(formatUsd(cost.spend));
  return counts.length === 0 ? NOTHING : html`<p class="cost">${counts.join(' · ')}</p>`;
}

const MAX_GIST_CHARS = 160;

/** The beginning of a text on one line. */
function gist(text: string): string {
  const line = text
    .slice(0, MAX_GIST_CHARS * 2)
    .replaceAll(/\s+/g, ' ')
    .trim();
  return line.length <= MAX_GIST_CHARS ? line : `${line.slice(0, MAX_GIST_CHARS - 1)}…`;
}

function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${Math.ceil(bytes)} B`;
  return bytes < 1_000_000
    ? `${(bytes / 1000).toFixed(1)} kB`
    : `${(bytes / 1_000_000).toFixed(1)} MB`;
}
