import type { EventPayloads } from '../../kernel/core/events.ts';
import type { AssistantBlock, AssistantMessage, UserMessage } from '../../kernel/core/message.ts';
import { timeOf } from '../../kernel/core/original.ts';
import { formatTokens, formatUsd } from '../../kernel/core/usage.ts';
import { isKnown, type TreeEntry } from '../../kernel/log/tree.ts';
import { isDetail, numberOr, type RunStart } from './annotations.ts';
import {
  anchorOf,
  childAddress,
  dayAndTime,
  type PageContext,
  parentOf,
  renderTime,
  rowText,
  type ViewMark,
} from './context.ts';
import { taskOf } from './directive.ts';
import { count, folded, gist, plain } from './prose.ts';
import { type Html, html, NOTHING } from './safe.ts';
import { toolBox } from './tool.ts';

/** The presentation of an entry: its class, the speaker, and the body. */
interface Shape {
  readonly look: 'user' | 'assistant' | 'tool_result' | 'injected' | 'summary' | 'setting';
  readonly who: string;
  readonly body: Html;
  readonly cost?: Html;
}

/** Renders one entry of the tree with its label, the model's view of it, and the log's notes about it. */
export function renderEntry(entry: TreeEntry, page: PageContext): Html {
  const { look, who, body, cost } = soundShape(entry, page);
  const isHidden = !page.active.has(entry.id);
  // the summary line of a folded result replaces the heading
  const heading =
    look === 'tool_result'
      ? NOTHING
      : html`<header><span class="who">${who}</span>${cost}${marksOf(entry, page)}</header>`;
  return html`${runDividers(entry.id, page)}<article class="entry ${look}${isDetail(entry) && html` detail`}" id="entry-${entry.id}" tabindex="-1"${isHidden && html` hidden`}>${heading}${body}${forkLinks(entry, page)}${notesBehind(entry.id, page)}</article>
`;
}

/** The label, what a reader should know before reading, and the address. */
function marksOf(entry: TreeEntry, page: PageContext): Html {
  const label = page.source.tree.labels.get(entry.id);
  return html`${label !== undefined && html`<span class="label">${label}</span>`}${tagsOf(entry, page)}<a class="anchor" href="${anchorOf(entry.id)}">${entryTime(entry, page)}</a>`;
}

function entryTime(entry: TreeEntry, { source }: PageContext): Html {
  const before = parentOf(source.tree, entry);
  return renderTime(timeOf(entry), before && timeOf(before));
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
  const { message } = entry.payload;
  if (message.role === 'tool_result') {
    const call = page.calls.answered.get(entry.id);
    const box = { call, result: message, marks: marksOf(entry, page) };
    return { look: 'tool_result', who: '', body: toolBox(box, page) };
  }
  if (message.role === 'user') {
    return { look: 'user', who: 'User', body: userMessage(message, page) };
  }
  const who = `Assistant, turn ${page.turns.get(entry.id) ?? 1}`;
  const body = assistantMessage(message, entry.id, page);
  return { look: 'assistant', who, body, cost: costLine(message, entry.id, page) };
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
  const body = html`<p class="quiet">At ${formatTokens(numberOr(tokens))} tokens the older part of the conversation gave way to this summary.</p>${folded('data', html`<span class="name">Summary</span>`, prose(summary))}`;
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
  return folded('data', summary, code.whole(JSON.stringify(payload, null, 2), 'json'));
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
    code.whole(text, 'markdown'),
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
    return folded('data', summary, code.whole(content, 'markdown'));
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
      : html`${what}${folded('data', html`<span class="name">Text for the model</span>`, code.whole(content))}`;
  return { who: 'Context edit', body };
}

/** Names each mark. The script has the same names for other branches. */
const MARK_WORDS: Readonly<Record<ViewMark, string>> = {
  unsent: 'no longer sent',
  omitted: 'hidden from the model',
  replaced: 'edited for the model',
};

function tagsOf(entry: TreeEntry, { marks }: PageContext): readonly Html[] {
  const tags: Html[] = [];
  if (isKnown(entry, 'message') && entry.payload.message.role === 'assistant') {
    const { stop_reason: reason } = entry.payload.message;
    if (reason === 'aborted')
      tags.push(
        html`<span class="tag" title="a person, a rule or a limit ended this answer">interrupted</span>`,
      );
    else if (reason !== 'end' && reason !== 'tool_calls')
      tags.push(html`<span class="tag" title="why the model stopped">${reason}</span>`);
  }
  const mark = marks.get(entry.id);
  if (mark) tags.push(html`<span class="tag seen">${MARK_WORDS[mark]}</span>`);
  return tags;
}

function forkLinks(entry: TreeEntry, page: PageContext): Html {
  const ways = page.forks.get(entry.id);
  if (!ways) return NOTHING;
  const links = ways.map(
    (row) =>
      html`<li${row.active && html` class="open"`}><a href="${anchorOf(row.entry.id)}">${rowText(row, page)}</a></li>`,
  );
  return html`<nav class="forks" aria-label="Branches"><p>${ways.length} branches from here</p><ul>${links}</ul></nav>`;
}

/** The runs that begin with an entry; '' for one that has none yet. */
export function runDividers(entryId: string, page: PageContext): Html {
  const runs = page.annotations.runs.get(entryId);
  if (!runs) return NOTHING;
  const isHidden = entryId !== '' && !page.active.has(entryId);
  const place = page.source.tree.byId.positionOf(entryId);
  return html`<div class="runs" data-place="${place}"${isHidden && html` hidden`}>${runs.map((start) => runDivider(start, page))}</div>`;
}

function runDivider(
  { run, reason, timestamp, model, limits }: RunStart,
  { source }: PageContext,
): Html {
  const { status, cost } = source.facts.document.runs?.find((one) => one.run === run) ?? {};
  const at = dayAndTime(timestamp);
  const granted = Object.entries(limits).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  const date = at ? `${at.day}, ${at.time}` : timestamp;
  const end = [status ?? '', cost ? formatUsd(cost.spend) : ''];
  const parts = [reason, date, ...end, model, granted.join(', ')].filter((part) => part !== '');
  return html`<p class="run"><b>Run${run !== undefined && ` ${run}`}</b><span>· ${parts.join(' · ')}</span></p>`;
}

/** The log's notes that follow an entry; '' for those before the first. */
export function notesBehind(entryId: string, page: PageContext): Html {
  const notes = page.annotations.notes.get(entryId);
  if (!notes) return NOTHING;
  const items = notes.map(
    ({ tone, text, detail = false, child }) =>
      html`<li class="${tone}${detail && html` detail`}">${text}${child !== undefined && page.source.pageOf?.(child) !== undefined && html` (${childAddress(child, page, 'its page')})`}</li>`,
  );
  return html`<ul class="notes${notes.every(({ detail }) => detail === true) && html` detail`}">${items}</ul>`;
}

/** Renders a message of a person; of a directive the task, its other parts folded. */
function userMessage({ content }: UserMessage, page: PageContext): Html {
  return html`${content.map((block) => (block.type === 'image' ? page.images.show(block) : userText(block.text, page)))}`;
}

function userText(text: string, { code, prose }: PageContext): Html {
  const task = taskOf(text);
  if (!task) return prose(text);
  const summary = html`<span class="name">Directive ${task.name}</span><span class="measure">the whole message, ${count(text.length, 'character')}</span>`;
  return html`${prose(task.text)}${folded('data directive', summary, code.whole(text, 'xml'))}`;
}

/** Renders an answer of the model: text, thinking, and the calls that no result shows. */
function assistantMessage(message: AssistantMessage, entryId: string, page: PageContext): Html {
  const blocks = message.content.map((block) => answerBlock(block, page));
  return html`${blocks}${looseCalls(entryId, page)}`;
}

function answerBlock(block: AssistantBlock, page: PageContext): Html {
  switch (block.type) {
    case 'text':
      return block.text.trim() === '' ? NOTHING : page.prose(block.text);
    case 'thinking': {
      const isRedacted = block.text === '' && block.redacted !== undefined;
      if (block.text.trim() === '' && !isRedacted) return NOTHING;
      const summary = html`<span class="name">Thinking</span><span class="gist">${plain(gist(block.text))}</span>`;
      if (!isRedacted) return folded('thinking', summary, page.prose(block.text));
      return html`<p class="quiet">The provider kept some thinking to itself.</p>`;
    }
    case 'tool_call':
      return NOTHING;
  }
}

/** Calls that not every branch answers. The script shows each where none of its results is on the branch. */
function looseCalls(entryId: string, page: PageContext): Html {
  const loose = page.calls.loose.get(entryId) ?? [];
  const boxes = loose.map(({ call, results }) => {
    const isAnswered = results.some((id) => page.active.has(id));
    const places = results.map((id) => page.source.tree.byId.positionOf(id)).join(' ');
    return html`<div class="loose" data-results="${places}"${isAnswered && html` hidden`}>${toolBox({ call }, page)}</div>`;
  });
  return html`${boxes}`;
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
  return counts.length === 0 ? NOTHING : html`<span class="cost">${counts.join(' · ')}</span>`;
}
