import { type JsonObject, type JsonValue, toText } from '../../core/json.ts';
import type { ToolOutcome } from '../../core/message.ts';
import { count } from '../output.ts';
import { oneLine } from '../terminal-text.ts';

/** Prefixes of wire names that people don't need: `rye_file_system_read` is `read`. */
const SHIPPED = /^rye[_/](?:file[_-]system[_/]|agent[_/]threads[_/])?/;
/** The inputs that identify a call, in order of preference. */
const SUBJECTS = ['path', 'pattern', 'command', 'query', 'item_id', 'operation', 'url'] as const;

/** Returns the name of a tool for people. */
export function toolName(name: string): string {
  return oneLine(name.replace(SHIPPED, '')) || oneLine(name);
}

/** Formats a call as `read src/a.js` or `bash npm test`. */
export function callLabel(name: string, input: JsonObject): string {
  const child = directiveCall(name, input);
  if (child) return childLabel(child.directive, child.inputs);
  const subjects = SUBJECTS.flatMap((key) => {
    const value = input[key];
    return typeof value === 'string' && value !== '' ? [{ key, value }] : [];
  });
  const shown = subjects.slice(0, name.endsWith('grep') ? 2 : 1).toReversed();
  const what =
    subjects.length > 0
      ? shown.map(({ key, value }) => (key === 'pattern' ? quoted(value) : oneLine(value)))
      : Object.values(input).slice(0, 2).map(shortValue);
  const isSilent = name.endsWith('_ls') && what.length === 0;
  return oneLine([toolName(name), ...(isSilent ? ['.'] : what)].join(' '));
}

function quoted(pattern: string): string {
  return /^[\w./*?{},[\]-]+$/.test(pattern) ? pattern : JSON.stringify(pattern);
}

function shortValue(value: JsonValue | undefined): string {
  return value === undefined ? '' : oneLine(toText(value)).slice(0, 60);
}

/** Returns the directive that a call runs as a child thread. */
export function directiveCall(
  name: string,
  input: JsonObject,
): { readonly directive: string; readonly inputs: JsonObject } | undefined {
  if (!/^rye[_/]execute$/.test(name) || input['item_type'] !== 'directive') return undefined;
  const { item_id: id, parameters } = input;
  if (typeof id !== 'string') return undefined;
  return { directive: id, inputs: isObject(parameters) ? parameters : {} };
}

/** Formats a child as its directive and its inputs: `summarize docs/f01.txt`. */
export function childLabel(directive: string, inputs: JsonObject): string {
  const values = Object.values(inputs).map(shortValue);
  return oneLine([directive.replace(/^rye\/core\//, ''), ...values].join(' '));
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
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
  const shown = reason ?? text.replace(/^[a-z_]+: /, '').split('\n')[0] ?? '';
  return shown === '' ? undefined : oneLine(shown);
}
