import { stat } from 'node:fs/promises';
import path from 'node:path';
import type { RuleSample } from '../../app/api/rules.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { readTextSource } from '../files.ts';
import { type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { count, formatTable, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye rules test <text|file>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const sample = await readSample(invocation, io);
  const { checked, hits } = await withRye(invocation, io, (rye) => rye.rules.test(sample));
  const { rule } = sample;
  const ok = checked > 0 && (rule === undefined || hits.length > 0);
  if (invocation.global.json) {
    printDocument(io, { success: ok, checked, hits, total: hits.length });
  } else if (hits.length === 0) {
    printLine(io, `${count(checked, 'rule')} checked, none is broken`);
  } else {
    const rows = hits.map(({ rule: name, interrupts, line }) => [
      name,
      interrupts ? 'interrupts' : 'reminds',
      line === undefined ? '' : `line ${line}`,
    ]);
    io.stdout.write(formatTable(['RULE', 'EFFECT', 'WHERE'], rows, io.stdout));
  }
  return ok ? EXIT.ok : EXIT.failed;
}

async function readSample(invocation: Invocation, io: Io): Promise<RuleSample> {
  const given = requiredArgument(invocation, 0, 'text|file');
  const rule = textOption(invocation, 'rule');
  const tool = textOption(invocation, 'tool');
  const isFile = await isNamedFile(given, io);
  const text = isFile || given === '-' ? await readTextSource(given, '<text|file>', io) : given;
  const about =
    textOption(invocation, 'path') ?? (isFile ? path.resolve(io.cwd, given) : undefined);
  const isCall = tool !== undefined || about !== undefined;
  return {
    text,
    source: sourceOf(textOption(invocation, 'source')) ?? (isCall ? 'tool' : 'text'),
    ...(rule === undefined ? {} : { rule }),
    ...(tool === undefined ? {} : { tool }),
    ...(about === undefined ? {} : { path: about }),
  };
}

function sourceOf(name: string | undefined): RuleSample['source'] | undefined {
  return (['text', 'thinking', 'tool'] as const).find((source) => source === name);
}

async function isNamedFile(given: string, io: Io): Promise<boolean> {
  if (given.includes('\0')) return false;
  const stats = await stat(path.resolve(io.cwd, given)).catch(() => undefined);
  return stats?.isFile() ?? false;
}
