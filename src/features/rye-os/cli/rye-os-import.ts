import { join } from 'node:path';
import type { Context } from '../../../faces/cli/command.ts';
import { count, formatTable, printLines, printResult } from '../../../faces/cli/output.ts';
import { openedRye, projectFolder } from '../../../faces/cli/session.ts';
import type { Io } from '../../../faces/ui/io.ts';
import { joined, oneLine, type Shown, shown } from '../../../faces/ui/visible.ts';
import type { Rye } from '../../../kernel/app/api/rye.ts';
import { systemSpacePath } from '../../../kernel/app/system.ts';
import { type ExitCode, RyeError } from '../../../kernel/core/errors.ts';
import type { SignableType } from '../../../kernel/core/ids.ts';
import {
  type AppliedFile,
  type AppliedImport,
  type AppliedReport,
  allowElevated,
  applyRyeOs,
  type DryRunRow,
  dryRun,
  RISKS_ID,
} from '../apply.ts';
import type { Examined } from '../review.ts';

type Call = Context & { readonly options: { readonly yes: boolean } };

/** In this order, because directives are checked against the others. */
const ORDER: readonly SignableType[] = ['config', 'knowledge', 'tool', 'directive'];
const NAMES: Readonly<Partial<Record<SignableType, string>>> = {
  config: 'configuration file',
  knowledge: 'knowledge entry',
};

/** Writes a reviewed tree into the project, signs it after a yes, dry-runs every directive and prints the table. */
export async function applyImport(call: Call, dir: string, examined: Examined): Promise<ExitCode> {
  const projectPath = projectFolder(call);
  const builtin = await withFresh(
    call,
    async (rye) => await rye.items.list('tool', { space: 'system' }),
  );
  const toolIds = new Set(builtin.map(({ id }) => id));
  const systemPath = systemSpacePath();
  const applied = applyRyeOs(examined, { dir, projectPath, systemPath, toolIds });
  show(call, writtenLines(applied));
  const toSign = ORDER.flatMap((type) =>
    applied.files.filter(
      (file) => file.type === type && file.action !== 'kept' && file.is_pinned !== true,
    ),
  );
  const pending = await unsigned(call, toSign);
  show(
    call,
    pending.length === 0
      ? []
      : [shown`To sign:`, ...pending.map(({ path }) => oneLine(`  ${path}`))],
  );
  const ids = examined.files.filter(({ type }) => type === 'directive').map(({ id }) => id);
  const directives = [...new Set(ids)].toSorted();
  const question = shown`Sign ${count(pending.length, 'file')} with your key? Review them first.`;
  const isSigned = pending.length === 0 || (await agrees(call, question));
  const failed = isSigned ? await sign(call, pending) : [];
  const table = isSigned ? await dryRuns(call, directives) : [];
  const report: AppliedReport = {
    ...applied,
    signed: isSigned ? pending.length - failed.length : 0,
    not_signed: failed,
    directives: table,
    planned: table.filter(({ plans }) => plans).length,
  };
  const { review } = examined;
  const document = { ...review, total: review.items.length, applied: report };
  return printResult(call, document, () =>
    isSigned
      ? [
          ...failed.map((line) => shown`not signed: ${line}`),
          ...tableLines(call, table),
          ...rest(applied),
        ]
      : [
          shown`Nothing is signed yet. Review the files, then run: rye import rye-os ${oneLine(dir)} --apply --yes`,
        ],
  );
}

/** Prints for people at once, before a question. */
function show({ io, global }: Context, lines: readonly Shown[]): void {
  if (!global.json) printLines(io, lines);
}

function writtenLines({ files, skipped }: AppliedImport): readonly Shown[] {
  const of = (action: AppliedFile['action']) => files.filter((file) => file.action === action);
  const summary = (action: AppliedFile['action']): readonly Shown[] => {
    const counts = ORDER.flatMap((type) => {
      const total = of(action).filter((file) => file.type === type).length;
      return total === 0 ? [] : [plural(total, NAMES[type] ?? type)];
    });
    return counts.length === 0 ? [] : [shown`${action}: ${joined(counts, ', ')}`];
  };
  return [
    ...summary('written'),
    ...of('changed').map(({ path }) => oneLine(`changed: ${path}`)),
    ...summary('unchanged'),
    ...of('kept').map(({ path }) =>
      oneLine(`kept: ${path} (it differs; remove it and import again to replace it)`),
    ),
    ...(skipped.length === 0 ? [] : skippedLines(skipped)),
  ];
}

function plural(total: number, noun: string): Shown {
  return noun.endsWith('y') && total !== 1
    ? oneLine(`${total} ${noun.slice(0, -1)}ies`)
    : count(total, noun);
}

/** Reasons of skipped items, the most frequent first. */
function skippedLines(skipped: AppliedImport['skipped']): readonly Shown[] {
  const own = skipped.filter(({ reason }) => /^rye (?:ships|has)|runtime of Rye OS/.test(reason));
  const moved = skipped.filter(({ reason }) => reason === 'it becomes configuration');
  const others = skipped.filter((one) => !own.includes(one) && !moved.includes(one));
  return [
    ...(own.length === 0
      ? []
      : [
          shown`skipped: ${count(own.length, 'item')} of the runtime of Rye OS, for which rye has its own`,
        ]),
    ...(moved.length === 0
      ? []
      : [shown`skipped: ${count(moved.length, 'manifest')}, now configuration`]),
    ...(others.length === 0
      ? []
      : [
          shown`skipped: ${count(others.length, 'item')} that cannot be signed; without --apply, this command lists the reasons`,
        ]),
  ];
}

/** The files that no signature of a trusted key covers. */
async function unsigned(
  call: Context,
  files: readonly AppliedFile[],
): Promise<readonly AppliedFile[]> {
  return await withFresh(call, async (rye) => {
    const pending: AppliedFile[] = [];
    const root = projectFolder(call);
    for (const type of ORDER) {
      const own = files.filter((file) => file.type === type);
      if (own.length === 0) continue;
      const verified = await rye.items.verify(type, '**');
      const good = new Set(verified.filter(({ ok }) => ok).map(({ path }) => path));
      pending.push(...own.filter(({ path }) => !good.has(join(root, path))));
    }
    return pending;
  });
}

/** Signs files one by one; returns a line for each that cannot be signed. */
async function sign(call: Context, files: readonly AppliedFile[]): Promise<readonly Shown[]> {
  if (files.length === 0) return [];
  return await withFresh(call, async (rye) => {
    const lines: Shown[] = [];
    for (const { type, id, path } of files) {
      const outcomes = await signOne(rye, type, id);
      const fault = outcomes.flatMap(({ status, problems }) =>
        status === 'failed' ? problems.filter(({ severity }) => severity === 'error') : [],
      )[0];
      if (fault) lines.push(oneLine(`${path}: ${fault.message} [${fault.code}]`));
    }
    show(call, [shown`signed ${count(files.length - lines.length, 'file')}`]);
    return lines;
  });
}

async function signOne(rye: Rye, type: SignableType, id: string) {
  try {
    return await rye.items.sign(type, id);
  } catch (error) {
    if (!(error instanceof RyeError) || error.code !== 'key_missing') throw error;
    await rye.keys.init();
    return await rye.items.sign(type, id);
  }
}

/** Dry-runs all directives; those with elevated tools once more if a person allows these for the project. */
async function dryRuns(call: Call, ids: readonly string[]): Promise<readonly DryRunRow[]> {
  const rows = await withFresh(call, async (rye) => await dryRun(rye, ids));
  const asking = rows.filter(({ code }) => code === 'acknowledge_required').map(({ id }) => id);
  if (asking.length === 0) return rows;
  const what = count(asking.length, 'directive');
  const question = shown`${what} may use elevated tools, such as shell commands and other systems. Allow these in this project?`;
  if (!(await agrees(call, question))) return rows;
  allowElevated(projectFolder(call));
  await withFresh(call, async (rye) => await rye.items.sign('config', RISKS_ID));
  show(call, [shown`signed .ai/config/${RISKS_ID}.yaml: risk_levels: {elevated: allow}`]);
  const again = await withFresh(call, async (rye) => await dryRun(rye, asking));
  return rows.map((row) => again.find(({ id }) => id === row.id) ?? row);
}

/** Opens the project as it is now; a key of a provider only decides which model a plan names, so one is made up. */
async function withFresh<T>(call: Context, work: (rye: Rye) => Promise<T>): Promise<T> {
  const env = { ANTHROPIC_API_KEY: 'dry-run', ...call.io.env };
  const rye = await openedRye({
    ...call,
    io: Object.create(call.io, { env: { value: env } }) as Io,
  });
  try {
    return await work(rye);
  } finally {
    rye.close();
  }
}

/** Asks a person; without a terminal only --yes is a yes. */
async function agrees({ io, options }: Call, question: Shown): Promise<boolean> {
  if (options.yes) return true;
  if (!io.stdinIsTty || !io.stderr.isTty) return false;
  return /^y(?:es)?$/i.test((await io.ask(shown`${question} [y/N] `)).trim());
}

function tableLines({ io }: Context, rows: readonly DryRunRow[]): readonly Shown[] {
  const planned = rows.filter(({ plans }) => plans).length;
  const share = rows.length === 0 ? 100 : Math.floor((100 * planned) / rows.length);
  const cells = rows.map(({ id, plans, code, reason }) => [
    id,
    plans ? 'yes' : 'no',
    plans ? '' : `${code}: ${reason}`,
  ]);
  return [
    shown``,
    ...formatTable(['DIRECTIVE', 'PLANS', 'REASON'], cells, io.stdout),
    shown``,
    shown`${planned} of ${count(rows.length, 'directive')} plan (${share} %)`,
  ];
}

function rest({ to_fill_in: places }: AppliedImport): readonly Shown[] {
  return places.map((place) =>
    oneLine(`Fill in before you use it: ${place}, then sign the file again`),
  );
}
