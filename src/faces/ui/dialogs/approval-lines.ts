import type { ListedApproval } from '../../../kernel/app/api/approvals.ts';
import { isJsonObject, type JsonValue, toText } from '../../../kernel/core/json.ts';
import { count } from '../../cli/output.ts';
import { type Colors, displayWidth, type Paint, squeeze, wrapText } from '../terminal-text.ts';
import {
  joined,
  judgedLines,
  oddCharacters,
  oneLine,
  paintDrawn,
  type Shown,
  shown,
} from '../visible.ts';

export interface RequestStyle {
  readonly columns: number;
  readonly colors: Colors;
}

/** Describes a request for people: what would run, with every argument, then who may decide about it. */
export function requestLines(approval: ListedApproval, colors: Colors): readonly Shown[] {
  const { preview } = approval;
  const lines = [
    ...factLines(approval),
    shown``,
    oneLine(preview.title),
    ...warningLines(approval, colors),
    ...judgedLines(preview.text).map((line) => shown`  ${line}`),
    ...inputLines(approval).flatMap((line) => [shown``, line]),
    ...(preview.schema ? [shown`  answer: ${oneLine(JSON.stringify(preview.schema))}`] : []),
  ];
  return lines.map((line) => paintDrawn(line, colors.red));
}

/** Lists the IDs, hashes, approvers and decisions of a request. */
function factLines(approval: ListedApproval): readonly Shown[] {
  const { id, kind, state, tool, thread_id: threadId, reason, approvers } = approval;
  const quorum = approval.quorum > 1 ? ` (${approval.quorum} of them)` : '';
  const facts: readonly (readonly [string, string])[] = [
    ['request', `${id}  ${kind}  ${state}`],
    ['thread', threadId],
    ['tool', `${tool}  (${approval.capability})`],
    ['asked by', approval.rule],
    ...(reason === '' ? [] : [['reason', reason] as const]),
    [
      'approvers',
      `${approvers.map(({ name, key_id: key }) => `${name} ${key}`).join(', ')}${quorum}`,
    ],
    ['scopes', approval.scopes.join(', ')],
    ['input', approval.input_sha256],
    ['hash', approval.request_sha256],
    ['expires', approval.expires_at],
    ...approval.decisions.map(
      ({ decision, key_id: key, decided_at: at, late, comment }) =>
        [
          late ? 'late' : 'decided',
          `${decision} by ${key} at ${at}${comment === '' ? '' : `: ${comment}`}`,
        ] as const,
    ),
  ];
  return facts.map(([name, value]) => oneLine(`${name.padEnd(10)} ${value}`));
}

/** Returns how many characters of a request are not shown as they are. */
export function oddCount({ preview, input, reason, kind }: ListedApproval): number {
  const texts = [
    preview.title,
    preview.text,
    reason,
    ...(kind === 'question' ? [] : textsOf(input)),
  ];
  const judged = new Set(texts.filter((text) => text !== ''));
  return Array.from(judged, oddCharacters).reduce((sum, odd) => sum + odd, 0);
}

function textsOf(value: JsonValue | undefined): readonly string[] {
  if (typeof value === 'string') return [value];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, member]) => [name, ...textsOf(member)]);
}

/** Reports in red that a request has characters that are not shown as they are. */
export function warningLines(approval: ListedApproval, { red, bold }: Colors): readonly Shown[] {
  const odd = oddCount(approval);
  if (odd === 0) return [];
  return [
    red(
      bold(
        shown`  has ${count(odd, 'character')} that ${odd === 1 ? 'is' : 'are'} not shown as they are`,
      ),
    ),
  ];
}

/** Returns the whole preview of a request, wrapped so that nothing of it is out of sight at the right. */
export function previewLines(
  { preview: { format, text } }: ListedApproval,
  { columns, colors }: RequestStyle,
): readonly Shown[] {
  return judgedLines(text).flatMap((line) =>
    wrapText(line, columns - 4).map((part) => {
      const drawn = paintDrawn(part, colors.red);
      return shown`  ${format === 'diff' ? diffPaint(line, colors)(drawn) : drawn}`;
    }),
  );
}

/** Returns one edit of several as a diff, wrapped. */
export function hunkLines(hunk: JsonValue, { columns, colors }: RequestStyle): readonly Shown[] {
  const { old_string: old, new_string: now } = isJsonObject(hunk) ? hunk : {};
  const lines = [
    ...judgedLines(toText(old ?? '')).map((line) => shown`-${line}`),
    ...judgedLines(toText(now ?? '')).map((line) => shown`+${line}`),
  ];
  return lines.flatMap((line) =>
    wrapText(line, columns - 6).map(
      (part) => shown`    ${diffPaint(line, colors)(paintDrawn(part, colors.red))}`,
    ),
  );
}

function diffPaint(line: string, { green, red, dim }: Colors): Paint {
  if (line.startsWith('+')) return green;
  return line.startsWith('-') ? red : dim;
}

/** Returns everything about a request, for the pages of the dialog: what would run comes first. */
export function pageLines(approval: ListedApproval, style: RequestStyle): readonly Shown[] {
  const { colors, columns } = style;
  const { input, kind, preview } = approval;
  const isWhole = kind === 'question' || preview.format === 'input';
  return [
    colors.bold(oneLine(approval.preview.title)),
    ...warningLines(approval, colors),
    ...previewLines(approval, style),
    shown``,
    ...(isWhole ? [] : [shown`input`, ...jsonLines(input, style), shown``]),
    ...factLines(approval)
      .flatMap((line) => wrapText(line, columns - 2))
      .map(colors.dim),
  ];
}

function jsonLines(input: JsonValue, { colors, columns }: RequestStyle): readonly Shown[] {
  return judgedLines(JSON.stringify(input, null, 2))
    .flatMap((line) => wrapText(line, columns - 4))
    .map((line) => shown`  ${paintDrawn(line, colors.red)}`);
}

/** The members of an input that the preview of its kind shows. */
const PREVIEWED: Readonly<Partial<Record<ListedApproval['preview']['format'], readonly string[]>>> =
  {
    command: ['command'],
    diff: ['path', 'content', 'edits', 'old_string', 'new_string'],
    plan: ['title', 'steps', 'files', 'commands', 'tools', 'directives', 'cost_usd'],
  };

/** The tool whose command line represents the call. */
const SHELL = 'rye/bash';

/** Returns the arguments of a call that its preview does not show, each on one line. */
export function inputLines({ input, preview, kind, tool }: ListedApproval): readonly Shown[] {
  if (kind === 'question' || preview.format === 'input') return [];
  const isShort = preview.format === 'diff' || preview.format === 'plan' || tool === SHELL;
  const previewed = isShort ? (PREVIEWED[preview.format] ?? []) : [];
  return Object.entries(input)
    .filter(([name]) => !previewed.includes(name))
    .map(([name, value]) => shown`${oneLine(name)}: ${oneLine(JSON.stringify(value))}`);
}

/** Returns what a call would do on one line, with every argument. */
export function wholeCall(approval: ListedApproval): Shown {
  const odd = oddCount(approval);
  const mark = odd === 0 ? '' : shown`(${count(odd, 'character')} not shown as they are) `;
  const { title, format, text } = approval.preview;
  // a diff does not name its file
  const about = format === 'diff' ? shown`${oneLine(title)}: ` : '';
  const first = shown`${mark}${about}${oneLine(text)}`;
  return joined([first, ...inputLines(approval)], ' · ');
}

/** Returns the arguments beside a preview, shortened to a line each. */
export function shortInputLines(
  approval: ListedApproval,
  { columns, colors }: RequestStyle,
): readonly Shown[] {
  return inputLines(approval).map(
    (line) => shown`  ${paintDrawn(squeeze(line, columns - 4), colors.red)}`,
  );
}

/** Packs keys into as few lines as they need. */
export function packed(keys: readonly string[], columns: number): readonly string[] {
  const lines: string[] = [];
  for (const key of keys) {
    const last = lines.at(-1);
    const longer = last === undefined ? key : `${last} · ${key}`;
    if (last !== undefined && displayWidth(longer) <= columns) lines[lines.length - 1] = longer;
    else lines.push(key);
  }
  return lines;
}
