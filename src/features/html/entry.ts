import type { EventPayloads, LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import { isJsonObject, type JsonObject, toText } from '../../kernel/core/json.ts';
import type {
  AssistantBlock,
  AssistantMessage,
  ContentBlock,
  UserMessage,
} from '../../kernel/core/message.ts';
import { timeOf } from '../../kernel/core/original.ts';
import { formatTokens, formatUsd } from '../../kernel/core/usage.ts';
import { type Account, accountOf, factsOf } from '../../kernel/log/account.ts';
import { taskIn } from '../../kernel/log/entry-text.ts';
import { isKnown, type TreeEntry } from '../../kernel/log/tree.ts';
import { isDetail, numberOr } from './annotations.ts';
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
import { count, folded, gist, plain } from './prose.ts';
import { type Html, html, NOTHING } from './safe.ts';
import { toolBox } from './tool.ts';

/** The presentation of an entry: its class, the speaker, and the body. */
interface Shape {
  readonly look: 'user' | 'assistant' | 'tool_result' | 'injected' | 'summary' | 'setting';
  readonly who: Html | string;
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
  return html`${runDividers(entry.id, page)}<article class="entry ${look}${isDetail(accountOf(entry)) && html` detail`}" id="entry-${entry.id}" tabindex="-1"${isHidden && html` hidden`}>${heading}${body}${forkLinks(entry, page)}${notesBehind(entry.id, page)}</article>
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
  const account = accountOf(entry);
  const { title = entry.event_type, parts = [] } = account ?? {};
  const who = account ? html`${title}: ${linked(account)}` : title;
  if (isKnown(entry, 'custom_message') && !entry.payload.display)
    return { look: 'setting', who, body: hiddenText(entry.payload.content) };
  if (account === undefined || (isKnown(entry, 'custom') && parts.length === 0))
    return { look: 'setting', who, body: asData(entry, page) };
  const look = LOOKS[entry.event_type] ?? 'setting';
  const body = parts.map(({ name, text }) => {
    const content = look === 'setting' ? page.code.whole(text, 'markdown') : page.prose(text);
    const isOpen = look !== 'setting' && !isKnown(entry, 'compaction');
    return isOpen ? content : folded('data', html`<span class="name">${name}</span>`, content);
  });
  const images = isKnown(entry, 'custom_message') ? (entry.payload.images ?? []) : [];
  return { look, who, body: html`${body}${shownBlocks(images, page)}` };
}

const LOOKS: Readonly<Record<string, Shape['look']>> = {
  custom_message: 'injected',
  compaction: 'summary',
  branch_summary: 'summary',
};

/** The facts of an account; the entry that they name is a link. */
function linked(account: Account): Html {
  const facts = factsOf(account);
  const { target, text } = account;
  if (typeof target !== 'string') return html`${facts}`;
  const at = text.lastIndexOf(target);
  return html`${facts.slice(0, at)}<a href="${anchorOf(target)}">an entry</a>${facts.slice(at + target.length)}`;
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

function hiddenText({ length }: string): Html {
  return html`<p class="quiet">Meant for the model only: ${count(length, 'character')} that this page does not show.</p>`;
}

function asData({ payload }: TreeEntry, { code }: PageContext): Html {
  const summary = html`<span class="name">Data</span>`;
  return folded('data', summary, code.whole(JSON.stringify(payload, null, 2), 'json'));
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
      html`<li${row.active && html` class="open"`}><a href="${anchorOf(row.entry.id)}">${rowText(row)}</a></li>`,
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
  { payload, timestamp }: LogEvent | UnknownEvent,
  { source }: PageContext,
): Html {
  const { run, reason = '', model = '', limits } = payload as JsonObject;
  const { status, cost } = source.facts.document.runs?.find((one) => one.run === run) ?? {};
  const at = dayAndTime(timestamp);
  const granted = Object.entries(isJsonObject(limits) ? limits : {}).map(
    ([name, value]) => `${name} ${JSON.stringify(value)}`,
  );
  const date = at ? `${at.day}, ${at.time}` : timestamp;
  const end = [status ?? '', cost ? formatUsd(cost.spend) : ''];
  const facts = [toText(reason), date, ...end, toText(model), granted.join(', ')];
  const parts = facts.filter((part) => part !== '');
  return html`<p class="run"><b>Run${typeof run === 'number' && ` ${run}`}</b><span>· ${parts.join(' · ')}</span></p>`;
}

const NOTE_LOOKS = { plain: 'plain', good: 'seal', warning: 'warn', bad: 'bad' } as const;

/** The log's notes that follow an entry; '' for those before the first. */
export function notesBehind(entryId: string, page: PageContext): Html {
  const notes = page.annotations.notes.get(entryId);
  if (!notes) return NOTHING;
  const items = notes.map((note) => {
    const { tone, lead, child } = note;
    const hasPage = child !== undefined && page.source.pageOf?.(child) !== undefined;
    return html`<li class="${NOTE_LOOKS[tone]}${isDetail(note) && html` detail`}">${lead}${factsOf(note)}${hasPage && html` (${childAddress(child, page, 'its page')})`}</li>`;
  });
  return html`<ul class="notes${notes.every(isDetail) && html` detail`}">${items}</ul>`;
}

/** Renders a message of a person; of a directive the task, its other parts folded. */
function userMessage({ content }: UserMessage, page: PageContext): Html {
  return shownBlocks(content, page);
}

function shownBlocks(content: readonly ContentBlock[], page: PageContext): Html {
  return html`${content.map((block) => (block.type === 'image' ? page.images.show(block) : userText(block.text, page)))}`;
}

function userText(text: string, { code, prose }: PageContext): Html {
  const task = taskIn(text);
  if (!task) return prose(text);
  const summary = html`<span class="name">Directive ${task.name}</span><span class="measure">the whole message, ${count(text.length, 'character')}</span>`;
  return html`${prose(task.task)}${folded('data directive', summary, code.whole(text, 'xml'))}`;
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
  const { spend } = annotations.turns.get(entryId) ?? {};
  const usage: Partial<AssistantMessage['usage']> = message.usage ?? {};
  const counts = COUNTS.flatMap(([member, name]) => {
    const amount = numberOr(usage[member]);
    return amount === 0 ? [] : [`${formatTokens(amount)} ${name}`];
  });
  if (spend !== undefined) counts.push(formatUsd(spend));
  return counts.length === 0 ? NOTHING : html`<span class="cost">${counts.join(' · ')}</span>`;
}
