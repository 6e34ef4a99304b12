import { RyeError } from './errors.ts';
import { type JsonObject, type JsonValue, jsonEquals } from './json.ts';

/** The tool whose edits a person may approve one by one. */
const MULTI_EDIT_ID = 'rye/file-system/multi_edit';

/** The end of one edit of several, from 1 in the order of the request. */
export interface EditOutcome {
  readonly hunk: number;
  readonly outcome: 'applied' | 'denied' | 'failed';
}

/** The edits of a call that a person may approve one by one; none if it has fewer than two. */
export function hunksOf(tool: string, input: JsonObject): readonly JsonValue[] {
  const { edits } = input;
  return tool === MULTI_EDIT_ID && Array.isArray(edits) && edits.length > 1 ? edits : [];
}

/** Returns the input of a call with only these of its edits, by their numbers from 1. Throws `invalid_input` for other numbers. */
export function keptHunks(
  { tool, input }: { readonly tool: string; readonly input: JsonObject },
  kept: readonly number[],
): JsonObject {
  const hunks = hunksOf(tool, input);
  const wrong = kept.find((hunk) => !Number.isInteger(hunk) || hunk < 1 || hunk > hunks.length);
  if (hunks.length === 0 || kept.length === 0 || wrong !== undefined) {
    const problem =
      hunks.length === 0
        ? `the call of ${tool} is not one of several edits`
        : `the call has the edits 1 to ${hunks.length}, and ${wrong ?? 'none'} was named`;
    throw new RyeError('invalid_input', problem, {
      hint: 'Name the edits to approve, such as --hunks 1,3; to approve none of them: rye deny ID',
    });
  }
  return { ...input, edits: hunks.filter((_, at) => kept.includes(at + 1)) };
}

/**
 * Compares the edits that were requested with those that ran. Undefined unless a person left some of them out and changed
 * nothing else.
 */
export function editOutcomes(
  tool: string,
  {
    requested,
    ran,
    isDone,
  }: { readonly requested: JsonObject; readonly ran: JsonObject; readonly isDone: boolean },
): readonly EditOutcome[] | undefined {
  const hunks = hunksOf(tool, requested);
  const left = Array.isArray(ran['edits']) ? [...ran['edits']] : [];
  if (
    !jsonEquals({ ...requested, edits: [] }, { ...ran, edits: [] }) ||
    left.length >= hunks.length
  )
    return undefined;
  const outcomes = hunks.map((hunk, at): EditOutcome => {
    const isKept = left.length > 0 && jsonEquals(hunk, left[0]);
    if (isKept) left.shift();
    return { hunk: at + 1, outcome: isKept ? (isDone ? 'applied' : 'failed') : 'denied' };
  });
  return left.length === 0 ? outcomes : undefined;
}

/** Writes the ends of edits as the model reads them, such as `Edited a.ts: 2/3 applied · 1 denied`. */
export function outcomesText(
  path: string,
  outcomes: readonly EditOutcome[],
  comment: string,
): string {
  const of = (outcome: EditOutcome['outcome']) => outcomes.filter((one) => one.outcome === outcome);
  const failed = of('failed').length;
  const parts = [
    `${of('applied').length}/${outcomes.length} applied`,
    `${of('denied').length} denied`,
    ...(failed > 0 ? [`${failed} failed`] : []),
  ];
  const why = comment === '' ? '' : `: ${comment}`;
  return [
    `Edited ${path}: ${parts.join(' · ')}`,
    ...outcomes.map(
      ({ hunk, outcome }) => `hunk ${hunk}: ${outcome}${outcome === 'denied' ? why : ''}`,
    ),
  ].join('\n');
}

/** Reads the ends of edits from the result of a call, as {@link outcomesText} wrote them; none if there are none. */
export function parseEditOutcomes(text: string): readonly EditOutcome[] {
  const found: EditOutcome[] = [];
  for (const [, hunk, outcome] of text.matchAll(/^hunk (\d+): (applied|denied|failed)\b/gm)) {
    found.push({ hunk: Number(hunk), outcome: outcome as EditOutcome['outcome'] });
  }
  return /^Edited .*: \d+\/\d+ applied · \d+ denied/m.test(text) ? found : [];
}
