import { type Condition, conditionPaths } from '../core/hook.ts';
import { type JsonObject, type JsonValue, toText } from '../core/json.ts';
import { LruMap } from '../core/lru.ts';
import { evaluate } from './condition.ts';
import { parsePath } from './interpolate.ts';
import { regexFindsInBegin, regexMayFind, type Template } from './regex-template.ts';
import { type CommandView, shellCommands } from './shell-commands.ts';

/** The tool whose `command` is a line of the shell. */
const SHELL = 'rye/bash';

/** The files that a call names or opens, found before it runs. */
export interface JudgedInput {
  /** The input with the real path of each file that it names. */
  readonly input: JsonObject;
  /** Files that a search would open; null: more than can be listed. Absent: it opens none, or no rule tests them. */
  readonly files?: readonly string[] | null;
}

/** One thing that a call does. A rule applies to the call if it applies to any of them. */
export interface CallView {
  readonly input: JsonObject;
  /** One of the commands of a line; null: the line may run commands that cannot be known. */
  readonly command?: CommandView | null;
  /** The call opens files that are not listed. */
  readonly isUnlisted?: true;
}

/** The call as it was made, with real paths, each file that it opens, and each command that it runs. */
export function callViews(
  tool: string,
  raw: JsonObject,
  judged?: JudgedInput,
): readonly CallView[] {
  const { input = raw, files = [] } = judged ?? {};
  const opened = (files ?? []).map((path): CallView => ({ input: { ...input, path } }));
  const views: CallView[] = [{ input }, ...(input === raw ? [] : [{ input: raw }]), ...opened];
  if (files === null) views.push({ input, isUnlisted: true });
  const { command } = raw;
  if (tool !== SHELL || typeof command !== 'string') return views;
  const commands = lines.getOrMake(command, () => ({ found: shellCommands(command) })).found;
  return [...views, ...(commands ?? [null]).map((one): CallView => ({ input, command: one }))];
}

/** Lines that several rules and gates judge. */
const lines = new LruMap<string, { readonly found: readonly CommandView[] | undefined }>(16);

/**
 * Returns the commands of a line of the shell, in which `…` is what is not known yet; null if they cannot be known, and
 * undefined if the call has no such line.
 */
export function commandTexts(views: readonly CallView[]): readonly string[] | null | undefined {
  const commands = views.flatMap(({ command }) => (command === undefined ? [] : [command]));
  if (commands.length === 0) return undefined;
  const texts = commands.flatMap((one) => one?.text.map((part) => part ?? '…').join('') ?? []);
  return texts.length < commands.length ? null : texts;
}

/** Returns the first of the views about which a condition may be; undefined if there is none. */
export function matchedView(
  condition: Condition | undefined,
  context: JsonObject,
  views: readonly CallView[],
): CallView | undefined {
  if (condition === undefined) return views[0];
  return views.find((view) =>
    mayBe(true, condition, { context: { ...context, input: view.input }, view }),
  );
}

interface Judged {
  readonly context: JsonObject;
  readonly view: CallView;
}

/** True if a condition may have a result, as far as it is known what the call does. */
function mayBe(result: boolean, condition: Condition, judged: Judged): boolean {
  const part = (one: Condition): boolean => mayBe(result, one, judged);
  if ('not' in condition) return mayBe(!result, condition.not, judged);
  if ('any' in condition) return result ? condition.any.some(part) : condition.any.every(part);
  if ('all' in condition) return result ? condition.all.every(part) : condition.all.some(part);
  const { context, view } = judged;
  const path = parsePath(condition.path)?.join('.');
  if (view.isUnlisted && path === 'input.path') return true;
  if (view.command === undefined || path !== 'input.command') {
    return evaluate(condition, context) === result;
  }
  if (view.command === null) return true;
  const { text, others } = view.command;
  return result
    ? [text, ...others].some((one) => mayHold(condition, one))
    : !surelyHolds(condition, text);
}

type Leaf = Extract<Condition, { readonly path: string }>;

/** The pattern of a test of a text; undefined for tests of something other than text. */
function patternOf({ op, value }: Leaf): string | undefined {
  if (op === 'regex') return toText(value ?? '');
  if (op === 'contains') return escaped(value);
  if (op === 'eq') return `^(?:${escaped(value)})$`;
  if (op === 'in' && Array.isArray(value)) return `^(?:${value.map(escaped).join('|')})$`;
  return undefined;
}

function escaped(value: JsonValue | undefined): string {
  return toText(value ?? '').replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`);
}

function mayHold(leaf: Leaf, text: Template): boolean {
  if (!text.includes(null)) return holds(leaf, text.join(''));
  const pattern = patternOf(leaf);
  return pattern === undefined || regexMayFind(pattern, text);
}

function surelyHolds(leaf: Leaf, text: Template): boolean {
  if (!text.includes(null)) return holds(leaf, text.join(''));
  const pattern = leaf.op === 'regex' || leaf.op === 'contains' ? patternOf(leaf) : undefined;
  const [begin] = text;
  return pattern !== undefined && typeof begin === 'string' && regexFindsInBegin(pattern, begin);
}

function holds(leaf: Leaf, text: string): boolean {
  return evaluate({ ...leaf, path: 'text' }, { text });
}

/** True if a condition tests the files that a call opens. */
export function readsFiles(condition: Condition | undefined): boolean {
  const paths = condition ? conditionPaths(condition) : [];
  return paths.some((path) => /^(?:input\.path|files)\b/.test(path));
}
