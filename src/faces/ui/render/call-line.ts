import { type JsonObject, type JsonValue, toText } from '../../../kernel/core/json.ts';
import type { ToolOutcome } from '../../../kernel/core/message.ts';
import { count } from '../../cli/output.ts';
import { squeeze } from '../terminal-text.ts';
import { oneLine, type Shown, shown } from '../visible.ts';

/** Prefixes of the built-in tools, whose last word is enough: `rye/file-system/read` is `read`. */
const BUILT_IN = /^rye\/(?:file-system\/|agent\/(?:threads\/)?)?(?=[^/]+$)/;
/** The same prefixes in wire names, which are all that is known of a call that has not begun. */
const BUILT_IN_WIRE = /^rye_(?:file_system_|agent_(?:threads_)?)?(?!core_|examples_)/;
/** The inputs that identify a call, in order of preference. */
const SUBJECTS = ['path', 'pattern', 'command', 'query', 'item_id', 'operation', 'url'] as const;

/** Returns the name of a tool for people, from its ID or its wire name: `read`, but `rye/core/greet` and `notes/words`. */
export function toolName(name: string): Shown {
  return oneLine(bareName(name));
}

function bareName(name: string): string {
  return name.replace(BUILT_IN, '').replace(BUILT_IN_WIRE, '') || name;
}

/** True for the call with which a model returns the outputs. A person sees the outputs instead. */
export function isReturn(name: string): boolean {
  return /^(?:rye_)?directive_return$/.test(name) || name.endsWith('/directive_return');
}

/** Columns of one argument. */
const VALUE_COLUMNS = 60;

/** Formats a call as `read src/a.js` or `bash npm test`. A call of a tool that is not built in has every argument. */
export function callLabel(name: string, input: JsonObject): Shown {
  const child = directiveCall(name, input);
  if (child) return childLabel(child.directive, child.inputs);
  const isBuiltIn = BUILT_IN.test(name) || BUILT_IN_WIRE.test(name);
  const subjects = SUBJECTS.flatMap((key) => {
    const value = input[key];
    return isBuiltIn && typeof value === 'string' && value !== '' ? [{ key, value }] : [];
  });
  const tool = bareName(name);
  const named = subjects.slice(0, tool === 'grep' ? 2 : 1).toReversed();
  const what =
    subjects.length > 0
      ? named.map(({ key, value }) => (key === 'pattern' ? quoted(value) : value))
      : Object.values(input).map(shortValue);
  const isSilent = tool === 'ls' && what.length === 0;
  return oneLine([tool, ...(isSilent ? ['.'] : what)].join(' '));
}

function quoted(pattern: string): string {
  return /^[\w./*?{},[\]-]+$/.test(pattern) ? pattern : JSON.stringify(pattern);
}

function shortValue(value: JsonValue | undefined): string {
  return value === undefined ? '' : squeeze(toText(value), VALUE_COLUMNS);
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
export function childLabel(directive: string, inputs: JsonObject): Shown {
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
  const why = reason ?? text.replace(/^[a-z_]+: /, '').split('\n')[0] ?? '';
  return why === '' ? undefined : shortReason(outcome, why);
}

const MORE = /^- and (\d+) more$/;

/** Returns a reason on one line. Of wrong arguments, only the first problem: the list of them is for the model. */
export function shortReason(outcome: ToolOutcome, reason: string): Shown {
  if (outcome !== 'invalid') return oneLine(reason);
  const problems = reason.split('\n').filter((line) => line.startsWith('- '));
  const [first] = problems;
  if (first === undefined) return oneLine(reason);
  const unlisted = MORE.exec(problems.at(-1) ?? '')?.[1];
  const others = problems.length - 1 + (unlisted === undefined ? 0 : Number(unlisted) - 1);
  return shown`${oneLine(first.slice(2))}${others === 0 ? '' : shown` (and ${others} more)`}`;
}
