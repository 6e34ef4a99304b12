import { shortReason, shortToolName } from '../../../kernel/app/api/trees.ts';
import type { JsonObject, JsonValue } from '../../../kernel/core/json.ts';
import type { ToolOutcome } from '../../../kernel/core/message.ts';
import { count } from '../../cli/output.ts';
import { oneLine, type Shown } from '../visible.ts';

/** Returns the name of a tool for people: `read`, but `rye/core/greet` and `notes/words`. */
export function toolName(name: string): Shown {
  return oneLine(shortToolName(name));
}

/** True for the call with which a model returns the outputs. A person sees the outputs instead. */
export function isReturn(name: string): boolean {
  return /^(?:rye_)?directive_return$/.test(name) || name.endsWith('/directive_return');
}

/** The end of a call, as far as it is known. */
export interface CallEnd {
  readonly outcome: ToolOutcome;
  readonly code?: string | undefined;
  readonly data?: JsonObject | undefined;
  readonly text?: string | undefined;
}

const REFUSALS: Readonly<Partial<Record<ToolOutcome, string>>> = {
  blocked: 'refused',
  unknown: 'unknown tool',
  invalid: 'invalid arguments',
  aborted: 'cancelled',
  skipped: 'skipped',
  timeout: 'timed out',
};

const PROBLEMS: Readonly<Record<string, string>> = {
  file_not_found: 'not found',
  item_not_found: 'not found',
  thread_not_found: 'not found',
  path_denied: 'path denied',
  capability_denied: 'not permitted',
  invalid_input: 'invalid arguments',
  cancelled: 'cancelled',
  spawn_failed: 'not started',
};

/** Returns the outcome of a call in about three words. */
export function outcomeWords(name: string, end: CallEnd): string {
  const { outcome, code, data = {}, text = '' } = end;
  const refusal = REFUSALS[outcome];
  if (refusal !== undefined) return code === 'capability_denied' ? 'not permitted' : refusal;
  const exit = data['exit_code'];
  if (data['timed_out'] === true) return 'timed out';
  if (typeof exit === 'number' && exit !== 0) return `exit ${exit}`;
  if (outcome === 'error') return problemWords(code, text);
  return successWords(toolName(name), data) ?? (outcome === 'substituted' ? 'answered' : 'ok');
}

function problemWords(code: string | undefined, text: string): string {
  const named = /^([a-z_]+): /.exec(text)?.[1];
  const problem = PROBLEMS[code ?? ''] ?? PROBLEMS[named ?? ''];
  if (problem === PROBLEMS['invalid_input'] && /no such|not found/i.test(text)) return 'not found';
  return problem ?? 'failed';
}

function successWords(tool: string, data: JsonObject): string | undefined {
  const size = (key: string): number | undefined => {
    const value = data[key];
    return Array.isArray(value) ? value.length : typeof value === 'number' ? value : undefined;
  };
  const counted = (key: string, noun: string, many?: string): string | undefined => {
    const total = size(key);
    if (total === undefined) return undefined;
    return many !== undefined && total !== 1 ? `${total} ${many}` : count(total, noun);
  };
  switch (tool) {
    case 'read':
      return data['unchanged'] === true ? 'unchanged' : counted('lines', 'line');
    case 'ls':
      return counted('entries', 'entry', 'entries');
    case 'glob':
      return counted('count', 'file');
    case 'grep':
      return counted('count', 'match', 'matches');
    case 'edit':
    case 'multi_edit':
      return counted('replacements', 'change');
    case 'write':
      return typeof data['status'] === 'string' ? data['status'] : undefined;
    case 'bash':
      return outputWords(data['output']);
    case 'search':
      return counted('results', 'result') ?? counted('total', 'result');
    default:
      return undefined;
  }
}

function outputWords(output: JsonValue | undefined): string | undefined {
  if (typeof output !== 'string') return undefined;
  const lines = output === '' ? 0 : output.replace(/\n$/, '').split('\n').length;
  return lines === 0 ? 'no output' : count(lines, 'line');
}

/** Outcomes whose words tell everything. */
const PLAIN_WORDS: ReadonlySet<string> = new Set(['not found', 'skipped', 'cancelled']);

/** Returns the reason of a call that did not succeed, on one line; undefined if the words tell it. */
export function failureReason(
  words: string,
  { outcome, reason, text = '' }: CallEnd & { readonly reason?: string | undefined },
): string | undefined {
  if (outcome === 'ok' || outcome === 'substituted') return undefined;
  if (outcome === 'aborted') return 'it may have had side effects';
  if (PLAIN_WORDS.has(words) || words.startsWith('exit ')) return undefined;
  const why = reason ?? text.replace(/^[a-z_]+: /, '').split('\n')[0] ?? '';
  return why === '' ? undefined : oneLine(shortReason(outcome, why));
}
