import type { SignOutcome, UnsignedItem } from '../../../kernel/app/api/items.ts';
import type { Rye } from '../../../kernel/app/api/rye.ts';
import { type ErrorCode, EXIT, type ExitCode, RyeError } from '../../../kernel/core/errors.ts';
import type { SignableType } from '../../../kernel/core/ids.ts';
import { shown, visible } from '../../ui/visible.ts';
import type { Context } from '../command.ts';
import {
  count,
  formatTable,
  printDocument,
  printLine,
  printLines,
  relativePath,
} from '../output.ts';
import { withRye } from '../session.ts';
import { printSigned } from '../signed.ts';

/** Names the faults of a signature that the person's own key can replace. */
const OWN_FAULTS: Readonly<Partial<Record<ErrorCode, string>>> = {
  unsigned: 'missing',
  content_modified: 'changed since',
  item_moved: 'of another ID',
  signed_by_thread: 'by a thread',
  signature_outdated: 'older form',
  signature_partial: 'older form',
};

const FOREIGN = 'untrusted';

interface SignAllOptions {
  readonly type?: SignableType | undefined;
  readonly dryRun: boolean;
  readonly yes: boolean;
}

/**
 * Lists the items of the project that lack a valid signature, and signs them after a yes. Items that another key signed are
 * listed only: who signs them vouches for another person's work.
 */
export async function signAll(context: Context, options: SignAllOptions): Promise<ExitCode> {
  const { io, global } = context;
  return await withRye(context, async (rye) => {
    const all = await rye.items.unsigned(options.type);
    const own = all.filter(({ error }) => OWN_FAULTS[error?.code ?? 'internal'] !== undefined);
    if (all.length === 0) return printNothing(context, options.type);
    if (!global.json) printTable(context, all);
    if (own.length === 0)
      return refuse(context, all, 'Trust the keys of their signers: rye keys trust FILE');
    if (options.dryRun) {
      if (global.json) printDocument(io, { success: true, ...listed(all) });
      return EXIT.ok;
    }
    if (!options.yes) {
      const hint = `Review them, then sign them with: rye sign${options.type === undefined ? '' : ` ${options.type}`} --yes`;
      if (global.json || !io.stdinIsTty || !io.stderr.isTty) return refuse(context, all, hint);
      const answer = await io.ask(shown`Sign ${count(own.length, 'item')}? [y/N] `);
      if (!/^y(?:es)?$/i.test(answer.trim()))
        throw new RyeError('cancelled', 'nothing was signed', { hint });
    }
    return printSigned(context, await signEach(rye, own));
  });
}

async function signEach(rye: Rye, items: readonly UnsignedItem[]): Promise<readonly SignOutcome[]> {
  const outcomes: SignOutcome[] = [];
  for (const { type, id, path } of items) {
    try {
      outcomes.push(...(await rye.items.sign(type, id)));
    } catch (error) {
      // one bad file must not stop the others
      if (!(error instanceof RyeError) || error.code.startsWith('key_')) throw error;
      outcomes.push({ type, id, path, status: 'failed', problems: [problemOf(error, path)] });
    }
  }
  return outcomes;
}

function printNothing(context: Context, type: SignableType | undefined): ExitCode {
  const { io, global } = context;
  if (global.json) printDocument(io, { success: true, items: [], total: 0 });
  else printLine(io, shown`nothing to sign: every ${type ?? 'item'} of this project is signed`);
  return EXIT.ok;
}

function refuse({ io, global }: Context, items: readonly UnsignedItem[], hint: string): ExitCode {
  const message = `${count(items.length, 'item')} without a valid signature`;
  if (global.json) {
    printDocument(io, {
      success: false,
      error: { code: 'unsigned', message, hint },
      ...listed(items),
    });
  } else io.stderr.write(shown`hint: ${visible(hint)}\n`);
  return EXIT.integrity;
}

/** The members of the document: what signing would do with each item, and what is wrong with it now. */
function listed(all: readonly UnsignedItem[]): { items: readonly SignOutcome[]; total: number } {
  const items = all.map(({ type, id, path, error }): SignOutcome => {
    const { code = 'internal', message = '', hint } = error ?? {};
    const status = OWN_FAULTS[code] === undefined ? 'failed' : 'would_sign';
    return { type, id, path, status, problems: [problemOf({ code, message, hint }, path)] };
  });
  return { items, total: items.length };
}

function problemOf(
  { code, message, hint }: { code: ErrorCode; message: string; hint?: string | undefined },
  path: string,
): SignOutcome['problems'][number] {
  const problem = { severity: 'error', code, message, path, line: null, column: null } as const;
  return hint === undefined ? problem : { ...problem, hint };
}

/** Prints one row for each item, grouped by what is wrong. */
function printTable(context: Context, items: readonly UnsignedItem[]): void {
  const rows = items
    .map((item) => {
      const { type, id, path, error } = item;
      const fault = OWN_FAULTS[error?.code ?? 'internal'] ?? FOREIGN;
      return [fault, type, id, noteOf(item), relativePath(path, context.io)];
    })
    .toSorted(([one = ''], [other = '']) => (one === other ? 0 : one < other ? -1 : 1));
  const headings = ['SIGNATURE', 'TYPE', 'ID', 'CHANGES', 'PATH'];
  printLines(context.io, formatTable(headings, rows, context.io.stdout, ['PATH']));
}

/** Returns what a person needs to know before they sign: how much changed, or whose key it was. */
function noteOf({ changes, error, key_id: key }: UnsignedItem): string {
  const lines = changes && `+${changes.added} -${changes.removed} lines since HEAD`;
  const [, when] = / after it was signed on (\d{4}-\d\d-\d\d)/.exec(error?.message ?? '') ?? [];
  const signed = when && `signed ${when}`;
  const signer =
    key !== undefined && error?.code.startsWith('key_') === true ? `by ${key}` : undefined;
  return [lines, signed, signer].filter((part) => part !== undefined).join(', ');
}
