import { messageOf } from '../core/errors.ts';
import type { EventDraft } from '../core/events.ts';
import { wireName } from '../core/ids.ts';
import { compact } from '../core/json.ts';
import { type ContentBlock, contentBytes, type ToolResultMessage } from '../core/message.ts';
import { escapeXml, headAndTail } from '../core/text.ts';
import { isProtectedTool } from '../log/protected-tools.ts';
import type { Reminder } from './ports.ts';
import type { Run } from './run.ts';
import type { Settled } from './tool-call.ts';

/** Bytes of a large result that the model still sees, half of its head and half of its tail. */
const PREVIEW_BYTES = 4096;
const READ_ON = 'Read the path in pages for the rest; each page names the offset to continue with.';
/** Images above this many base64 characters are refused by the model APIs. */
const MAX_IMAGE_CHARS = 5 * 1024 * 1024;

/** Bodies of skills and schemas up to this size stay in the context as they are. */
const KEPT_BYTES = 128 * 1024;

/** Maximum size of a structured result in the log. A larger one is in its text, or in its artifact. */
const MAX_DATA_CHARS = 64 * 1024;

/** Characters of a result as JSON that steps compute with: a line of the log holds them, however they are encoded. */
const MAX_WHOLE_CHARS = 4 * 1024 * 1024;

/** A settled call with its result as the model gets it. */
export interface Result {
  readonly settled: Settled;
  /** Steps compute with it: nothing is omitted. */
  readonly isWhole?: true;
  readonly content: readonly ContentBlock[];
  /** UTF-8 bytes of text plus base64 characters of images, before anything was moved out. */
  readonly outputBytes: number;
  readonly artifact?: string;
}

/** Moves what is too large for the context into an artifact, leaving head, tail and path. Never rejects. */
export async function boundResult(run: Run, settled: Settled): Promise<Result> {
  const { content } = settled;
  const { persistThreshold, persistExcludeTools } = run.behavior;
  const textBytes = contentBytes(content.filter(({ type }) => type === 'text'));
  const outputBytes = contentBytes(content);
  if (run.models.traits.replayable) return { ...wholeResult(settled), outputBytes };
  const imageChars = outputBytes - textBytes;
  // the body of a skill is instructions, which mean something else without their end
  const isKept = isProtectedTool(settled.requested.call.name) && textBytes <= KEPT_BYTES;
  const threshold = persistThreshold ?? run.plan.settings.result_max_bytes;
  const tooMuchText =
    threshold > 0 &&
    textBytes > threshold &&
    !isKept &&
    !persistExcludeTools.has(wireName(settled.tool));
  const tooMuchImage = imageChars > MAX_IMAGE_CHARS;
  if (!tooMuchText && !tooMuchImage) return { settled, content: orEmpty(content), outputBytes };
  const saved = await save(run, settled);
  // the model sees only a part, so that a second read must not answer that it has seen all
  run.calls.forgetResults();
  const images = tooMuchImage ? [] : content.filter((block) => block.type === 'image');
  const preview = headAndTail(textOfBlocks(content), PREVIEW_BYTES);
  const where = 'path' in saved ? ` path="${escapeXml(saved.path)}"` : '';
  const rest = 'path' in saved ? READ_ON : `The rest is lost: ${saved.problem}`;
  const text =
    `<persisted-output tool="${escapeXml(settled.tool)}" bytes="${outputBytes}"${where}>\n` +
    `${preview}\n</persisted-output>\nThis is the beginning and the end of a large result. ${rest}`;
  return {
    settled,
    content: [{ type: 'text', text }, ...images],
    outputBytes,
    ...('path' in saved ? { artifact: saved.path } : {}),
  };
}

/** A result for a step: the whole, or an error, since a shortened one would be computed with as if it were the whole. */
function wholeResult(settled: Settled): Omit<Result, 'outputBytes'> {
  const { content, data, ...rest } = settled;
  const size = JSON.stringify([content, data]).length;
  if (size <= MAX_WHOLE_CHARS) return { settled, content: orEmpty(content), isWhole: true };
  const code = 'result_too_large';
  const reason = `the result has ${size} characters as JSON, more than the ${MAX_WHOLE_CHARS} that a step can use`;
  const text = { type: 'text', text: `${code}: ${reason}. Ask for a part of it.` } as const;
  return { settled: { ...rest, outcome: 'error', content: [text], code, reason }, content: [text] };
}

type Saved = { readonly path: string } | { readonly problem: string };

async function save(run: Run, { requested, content }: Settled): Promise<Saved> {
  try {
    return { path: await run.ports.artifacts.save(requested.call.call_id, content) };
  } catch (error) {
    return { problem: `it could not be saved: ${messageOf(error)}` };
  }
}

/** Model APIs refuse empty results. */
function orEmpty(content: readonly ContentBlock[]): readonly ContentBlock[] {
  const kept = content.filter((block) => block.type !== 'text' || block.text !== '');
  return kept.length === 0 ? [{ type: 'text', text: '(no output)' }] : kept;
}

function textOfBlocks(content: readonly ContentBlock[]): string {
  return content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n');
}

/** The result with a reminder in front; its own content stays as it is. */
export function remindedResult(result: Result, reminder: Reminder | undefined): Result {
  if (!reminder) return result;
  return { ...result, content: [{ type: 'text', text: reminder.text }, ...result.content] };
}

/** The log's record of how a call ended. */
export function settledDraft({ settled, outputBytes, artifact }: Result): EventDraft {
  const { requested, tool, outcome, durationMs, code, reason, coerced } = settled;
  return {
    event_type: 'tool_settled',
    repeatable: settled.mayHaveActed !== true,
    payload: compact({
      call_id: requested.call.call_id,
      tool,
      outcome,
      duration_ms: durationMs,
      output_bytes: outputBytes,
      code,
      reason,
      artifact,
      coerced,
    }),
  };
}

/** The entry that answers the call. */
export function resultDraft({ settled, content, isWhole }: Result, turn: number): EventDraft {
  const { call } = settled.requested;
  const { data } = settled;
  const isKept = data !== undefined && (isWhole || JSON.stringify(data).length <= MAX_DATA_CHARS);
  const message: ToolResultMessage = {
    role: 'tool_result',
    call_id: call.call_id,
    name: call.name,
    content,
    outcome: settled.outcome,
    ...(isKept ? { data } : {}),
  };
  const repeatable = settled.mayHaveActed !== true;
  return { event_type: 'message', payload: { message, turn }, repeatable };
}
