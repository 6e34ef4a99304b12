import { appendFileSync } from 'node:fs';
import path from 'node:path';
import { messageOf, RyeError, toRyeError } from '../../kernel/core/errors.ts';
import { headChars } from '../../kernel/core/text.ts';
import { oneLine, shown } from '../ui/visible.ts';
import type { Context } from './command.ts';
import { assertWritableTarget } from './input.ts';

/** One checked thing, such as a run or a file. */
export interface CiCase {
  readonly name: string;
  readonly seconds?: number;
  readonly failure?: CiFailure;
  /** Facts of a run, such as its thread and cost, by their names in JUnit. */
  readonly facts?: Readonly<Record<string, string>>;
  /** Text that a run returned, by name. */
  readonly outputs?: Readonly<Record<string, string>>;
  /** Markdown about a run, which the summary of a job shows instead of its facts and outputs. */
  readonly receipt?: string;
  /** It is a part of rye: the summary of a job only counts those that are well. */
  readonly isShipped?: boolean;
}

interface CiFailure {
  readonly code: string;
  readonly message: string;
  readonly path?: string | undefined;
  readonly line?: number | undefined;
}

interface CiRequest {
  /** Name of the suite, such as `rye run`. */
  readonly suite: string;
  /** The value of `--junit`. */
  readonly junit: string | undefined;
  /** Name of the case if the work fails as a whole. */
  readonly name: string;
}

/**
 * Does the work of a command and reports its cases: as JUnit XML with `--junit`, as annotations in a job of GitHub
 * Actions, and in the summary of that job. A failure of the work is a case too, and is thrown again.
 */
export async function withCiReport<T>(
  context: Context,
  { suite, junit, name }: CiRequest,
  work: () => Promise<{ readonly value: T; readonly cases: readonly CiCase[] }>,
): Promise<T> {
  const { io } = context;
  const target = junit === undefined ? undefined : await assertWritableTarget('--junit', junit, io);
  const started = io.monotonic();
  const report = async (cases: readonly CiCase[]): Promise<void> => {
    if (target !== undefined) {
      const { writeOutput } = await import('../../kernel/disk/whole-file.ts');
      const seconds = (io.monotonic() - started) / 1000;
      writeOutput(target, junitText(suite, cases, seconds), {
        hint: 'The work itself has finished.',
      });
    }
    annotate(cases, context);
    summarize(suite, cases, context);
  };
  let done: { readonly value: T; readonly cases: readonly CiCase[] };
  try {
    done = await work();
  } catch (error) {
    await report([{ name, failure: failureOf(error) }]);
    throw error;
  }
  await report(done.cases);
  return done.value;
}

function failureOf(error: unknown): CiFailure {
  const { code, location, details } = toRyeError(error);
  const named = details?.['path'];
  const file = location?.path ?? (typeof named === 'string' ? named : undefined);
  return { code, message: messageOf(error), path: file, line: location?.line };
}

function junitText(suite: string, cases: readonly CiCase[], seconds: number): string {
  const failed = cases.filter(({ failure }) => failure !== undefined).length;
  const counts = `tests="${cases.length}" failures="${failed}" errors="0" skipped="0" time="${seconds.toFixed(3)}"`;
  const rows = cases.map((one) => {
    const { name, seconds: own = seconds / cases.length } = one;
    const head = `    <testcase classname="${xml(suite)}" name="${xml(name)}" time="${own.toFixed(3)}"`;
    const parts = [...propertiesOf(one), ...failureIn(one), ...systemOutOf(one)];
    if (parts.length === 0) return `${head}/>`;
    return [`${head}>`, ...parts.map((part) => `      ${part}`), '    </testcase>'].join('\n');
  });
  return `<?xml version="1.0" encoding="UTF-8"?>
<testsuites ${counts}>
  <testsuite name="${xml(suite)}" ${counts}>
${rows.join('\n')}
  </testsuite>
</testsuites>
`;
}

function propertiesOf({ facts = {} }: CiCase): readonly string[] {
  const rows = Object.entries(facts).map(
    ([name, value]) => `  <property name="${xml(name)}" value="${xml(value)}"/>`,
  );
  return rows.length === 0 ? [] : ['<properties>', ...rows, '</properties>'];
}

function failureIn({ failure }: CiCase): readonly string[] {
  if (failure === undefined) return [];
  const { code, message, path: file, line } = failure;
  const place = file === undefined ? '' : `${file}${line === undefined ? '' : `:${line}`}: `;
  return [
    `<failure type="${xml(code)}" message="${xml(message)}">${xml(`${place}${message} [${code}]`)}</failure>`,
  ];
}

function systemOutOf({ outputs = {} }: CiCase): readonly string[] {
  const text = Object.entries(outputs).map(([name, value]) => `${name}: ${value}`);
  return text.length === 0 ? [] : [`<system-out>${xml(text.join('\n'))}</system-out>`];
}

/** Escapes a text for XML; characters that XML cannot have are dropped. */
function xml(text: string): string {
  return text
    .replaceAll(/[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, '')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll('\n', '&#10;');
}

/** Prints `::error file=…::…` on stderr, so that stdout stays the result alone. */
function annotate(cases: readonly CiCase[], { io }: Context): void {
  if (io.env['GITHUB_ACTIONS'] !== 'true') return;
  for (const { name, failure } of cases) {
    if (failure === undefined) continue;
    const { code, message, path: file, line } = failure;
    const place = [
      file === undefined
        ? ''
        : `file=${property(fromWorkspace(file, io.env['GITHUB_WORKSPACE'] ?? io.cwd))}`,
      line === undefined ? '' : `line=${line}`,
      `title=${property(`${name}: ${code}`)}`,
    ].filter((part) => part !== '');
    io.stderr.write(shown`::error ${oneLine(place.join(','))}::${oneLine(data(message))}\n`);
  }
}

function fromWorkspace(file: string, root: string): string {
  const inside = path.relative(root, file);
  return inside === '' || inside.startsWith('..') || path.isAbsolute(inside) ? file : inside;
}

function data(text: string): string {
  return text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
}

function property(text: string): string {
  return data(text).replaceAll(':', '%3A').replaceAll(',', '%2C');
}

/** A job continues without its summary. */
function summarize(suite: string, cases: readonly CiCase[], { io, global }: Context): void {
  const file = io.env['GITHUB_STEP_SUMMARY'];
  if (file === undefined || file === '' || !path.isAbsolute(file)) return;
  const named = cases.filter(({ failure, isShipped }) => failure !== undefined || !isShipped);
  const rows = named.map(
    ({ name, failure }) =>
      `| ${cell(name)} | ${failure === undefined ? 'ok' : cell(`${failure.message} [${failure.code}]`)} |`,
  );
  try {
    const shipped = cases.length - named.length;
    const table = ['| case | result |', '| --- | --- |', ...rows];
    const parts = [
      `### ${suite}`,
      ...(rows.length > 0 ? [table.join('\n')] : []),
      ...(shipped > 0 ? [`${shipped} items of rye itself: ok`] : []),
      ...named.flatMap(reportOf),
    ];
    appendFileSync(file, `${parts.join('\n\n')}\n\n`);
  } catch (error) {
    if (error instanceof RyeError) throw error;
    if (!global.quiet)
      io.stderr.write(shown`rye: warning: no job summary: ${oneLine(messageOf(error))}\n`);
  }
}

const MAX_OUTPUT = 64 * 1024;

/** Returns the facts and outputs of a run. A fence keeps the text of a model from being markup of the page. */
function reportOf({ facts = {}, outputs = {}, receipt }: CiCase): readonly string[] {
  if (receipt !== undefined) return [receipt.trimEnd()];
  const known = Object.entries(facts).map(([name, value]) => `${name}: \`${cell(value)}\``);
  return [
    ...(known.length === 0 ? [] : [known.join(' · ')]),
    ...Object.entries(outputs).map(([name, value]) => {
      const text = value.length > MAX_OUTPUT ? `${headChars(value, MAX_OUTPUT)}\n…` : value;
      const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
      const fence = '`'.repeat(longest + 1);
      return `**${cell(name)}**\n\n${fence}text\n${text.trimEnd()}\n${fence}`;
    }),
  ];
}

function cell(text: string): string {
  return text
    .replaceAll(/[\r\n]+/g, ' ')
    .replaceAll('|', String.raw`\|`)
    .replaceAll('<', '&lt;');
}
