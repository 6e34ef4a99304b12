import { formatSeconds, formatTokens, formatUsd } from '../../core/amounts.ts';
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
import { numberOr } from './annotations.ts';
import { folded, type PageContext } from './context.ts';
import { type Html, html, NOTHING } from './safe.ts';

/** What a person said. */
export function userMessage({ content }: UserMessage, page: PageContext): Html {
  return html`${content.map((block) => contentBlock(block, page))}`;
}

/** What the model said, thought and called, and what that cost. */
export function assistantMessage(
  message: AssistantMessage,
  entryId: string,
  page: PageContext,
): Html {
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
      if (!isRedacted) return folded({ kind: 'thinking', summary }, page.prose(block.text));
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
  return folded({ kind: 'call', summary }, body);
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

/** What a tool gave, behind one line; `marks` stand at the end of it. */
export function toolResult(message: ToolResultMessage, marks: Html, page: PageContext): Html {
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
  return folded({ kind: 'result', summary, isOpen: isError }, body);
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
    const count = numberOr(usage[member]);
    return count === 0 ? [] : [`${formatTokens(count)} ${name}`];
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
