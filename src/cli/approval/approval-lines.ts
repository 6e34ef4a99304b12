import type { ListedApproval } from '../../app/api/approvals.ts';
import { type Colors, displayWidth, neutralize, oneLine, wrapText } from '../terminal-text.ts';

/** Describes a request for people: what would run, then who may decide about it. */
export function requestLines(approval: ListedApproval): readonly string[] {
  const { preview } = approval;
  return [
    ...factLines(approval),
    '',
    oneLine(preview.title),
    ...neutralize(preview.text)
      .split('\n')
      .map((line) => `  ${line}`),
    ...(preview.schema ? [`  answer: ${oneLine(JSON.stringify(preview.schema))}`] : []),
  ];
}

/** Lists the IDs, hashes, approvers and decisions of a request. */
function factLines(approval: ListedApproval): readonly string[] {
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
  return facts.map(([name, value]) => `${name.padEnd(10)} ${oneLine(value)}`);
}

export interface RequestStyle {
  readonly columns: number;
  readonly colors: Colors;
}

/** Returns the whole preview of a request, wrapped so that nothing of it is out of sight at the right. */
export function previewLines(
  { preview: { format, text } }: ListedApproval,
  { columns, colors }: RequestStyle,
): readonly string[] {
  return neutralize(text)
    .replaceAll('\t', '    ')
    .split('\n')
    .flatMap((line) => {
      const paint = format === 'diff' ? diffPaint(line, colors) : String;
      return wrapText(line, columns - 4).map((part) => `  ${paint(part)}`);
    });
}

function diffPaint(line: string, { green, red, dim }: Colors): (text: string) => string {
  if (line.startsWith('+')) return green;
  return line.startsWith('-') ? red : dim;
}

/** Returns everything about a request, for the pages of the dialog: what would run comes first. */
export function pageLines(approval: ListedApproval, style: RequestStyle): readonly string[] {
  const { colors, columns } = style;
  return [
    colors.bold(oneLine(approval.preview.title)),
    ...previewLines(approval, style),
    '',
    ...(approval.kind === 'question' ? [] : inputLines(approval, columns)),
    ...factLines(approval)
      .flatMap((line) => wrapText(line, columns - 2))
      .map(colors.dim),
  ];
}

/** A diff does not show the whole input, such as the mode of a write. */
function inputLines({ input, preview }: ListedApproval, columns: number): readonly string[] {
  if (preview.format === 'input') return [];
  const text = neutralize(JSON.stringify(input, null, 2));
  return ['input', ...wrapText(text, columns - 4).map((line) => `  ${line}`), ''];
}

/** Packs keys into as few lines as they need. */
export function packed(keys: readonly string[], columns: number): readonly string[] {
  const lines: string[] = [];
  for (const key of keys) {
    const last = lines.at(-1);
    const joined = last === undefined ? key : `${last} · ${key}`;
    if (last !== undefined && displayWidth(joined) <= columns) lines[lines.length - 1] = joined;
    else lines.push(key);
  }
  return lines;
}
