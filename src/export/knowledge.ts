import { stringify } from 'yaml';
import type { ErrorInfo } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import { type ContentBlock, type Message, textOf } from '../core/message.ts';
import type { Cost } from '../core/usage.ts';
import { fence, inlineCode, quote } from './markdown.ts';

/** What a thread's export says besides its log; the members of thread.json that it needs. */
export interface ExportFacts {
  readonly document: {
    readonly thread_id: string;
    readonly directive: string;
    readonly status: string;
    readonly model: string;
    readonly created_at: string;
    readonly parent_thread_id: string | null;
    readonly continuation_of?: string;
    readonly continuation_thread_id?: string;
    readonly cost?: Cost;
    readonly result?: string;
    readonly outputs?: JsonObject;
    readonly error?: ErrorInfo;
  };
  readonly events: readonly (LogEvent | UnknownEvent)[];
  readonly description: string;
  readonly capabilitiesRef: string;
  readonly finishedAt: string;
}

/** Of a longer tool result the head and the tail are kept, so that search still finds what stands in them. */
const MAX_RESULT_CHARS = 16_384;

/** Renders a thread as a knowledge entry: frontmatter, then the readable conversation. Same log, same text. */
export function renderThreadKnowledge(facts: ExportFacts): string {
  const body = ownEvents(facts).flatMap((event) =>
    isMessageEvent(event) ? renderMessage(event.payload) : [],
  );
  return [
    frontmatter(facts),
    `# ${facts.document.directive}`,
    facts.description === '' ? '' : quote(facts.description),
    ...body,
    outcome(facts),
  ]
    .filter((part) => part !== '')
    .join('\n\n')
    .concat('\n');
}

/** A continuation begins with what it was given of its predecessor, whose own export has that. */
function ownEvents({ document, events }: ExportFacts): ExportFacts['events'] {
  if (document.continuation_of === undefined) return events;
  return events.slice(events.findIndex(({ event_type }) => event_type === 'thread_continued') + 1);
}

function frontmatter({ document, description, capabilitiesRef, finishedAt }: ExportFacts): string {
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
    finished_at: finishedAt,
    ...(cost ? { duration_seconds: cost.elapsed_seconds, cost: { ...cost } } : {}),
    ...(parent_thread_id === null ? {} : { parent: parent_thread_id }),
    ...(continuation_of === undefined ? {} : { continuation_of }),
    ...(continued_by === undefined ? {} : { continuation_thread_id: continued_by }),
    ...(outputs ? { outputs } : {}),
    capabilities_ref: capabilitiesRef,
    tags: ['thread', status],
  };
  // YAML escapes the other control characters itself.
  const yaml = stringify(metadata, { lineWidth: 0 }).replaceAll(/(?!\n)\p{Cc}/gu, '\u{FFFD}');
  return `---\n${yaml}---`;
}

type MessageEvent = Extract<LogEvent, { event_type: 'message' }>;

function isMessageEvent(event: LogEvent | UnknownEvent): event is MessageEvent {
  return event.event_type === 'message';
}

function renderMessage({ message, turn }: MessageEvent['payload']): string[] {
  switch (message.role) {
    case 'user':
      return ['## Input', fence(blocksText(message.content), 'text')];
    case 'assistant':
      return [`## Turn ${turn ?? 0}`, ...renderAnswer(message)];
    case 'tool_result':
      return [
        `### Result of ${inlineCode(message.name)}: ${message.outcome}`,
        fence(bounded(blocksText(message.content)), 'text'),
      ];
  }
}

function renderAnswer(message: Extract<Message, { role: 'assistant' }>): string[] {
  const parts: string[] = [];
  if (message.stop_reason === 'aborted')
    parts.push('*This answer was cut off and is not part of the conversation.*');
  for (const block of message.content) {
    if (block.type === 'tool_call') {
      const input = block.malformed ?? JSON.stringify(block.input, null, 2);
      parts.push(`### Call of ${inlineCode(block.name)}`, fence(bounded(input), 'json'));
    } else if (block.text.trim() !== '') {
      parts.push(block.type === 'thinking' ? fence(block.text, 'thinking') : quote(block.text));
    }
  }
  return parts;
}

function outcome({ document }: ExportFacts): string {
  const { status, result = '', outputs, error, cost } = document;
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
  return parts.join('\n\n');
}

function blocksText(content: readonly ContentBlock[]): string {
  const images = content.filter((block) => block.type === 'image').length;
  return images === 0 ? textOf(content) : `${textOf(content)}\n[${images} image(s)]`;
}

function bounded(text: string): string {
  if (text.length <= MAX_RESULT_CHARS) return text;
  const half = MAX_RESULT_CHARS / 2;
  return `${text.slice(0, half)}\n… ${text.length - MAX_RESULT_CHARS} characters left out …\n${text.slice(-half)}`;
}
