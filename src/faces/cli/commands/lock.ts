import type { GuardChange, GuardDiff } from '../../../kernel/app/api/items.ts';
import { EXIT } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';
import { oneLine, type Shown, shown } from '../../ui/visible.ts';
import { defineCommand, defineGroup, flag } from '../command.ts';
import { failureText } from '../failure.ts';
import { confirm } from '../input.ts';
import { count, displayPath, printDocument, printLine, printResult } from '../output.ts';
import { withRye } from '../session.ts';

const status = defineCommand({
  name: 'status',
  summary: 'List pinned and changed files; exit status 3 if the changes block runs',
  examples: ['rye lock status --json'],
  run: async (call) => {
    const { io, global } = call;
    const { refusal, ...report } = await withRye(call, (rye) => rye.lock.status());
    const exitCode = refusal === null ? EXIT.ok : EXIT.integrity;
    if (global.json) {
      const success = refusal === null;
      printDocument(io, compact({ success, error: refusal ?? undefined, ...report }));
      return exitCode;
    }
    const { files, changes, ignored, serial } = report;
    for (const { type, id, sha256, key_id } of files) {
      if (changes.some((change) => change.type === type && change.id === id)) continue;
      printLine(io, oneLine(`pinned ${type} ${id} ${sha256.slice(0, 12)} ${key_id}`));
    }
    for (const change of changes) printLine(io, changeLine(change));
    for (const warning of ignored) printLine(io, oneLine(warning));
    const version = serial === null ? 'no lock file' : `lock version ${serial}`;
    printLine(io, shown`${count(files.length, 'power file')} pinned, ${oneLine(version)}`);
    if (refusal !== null) io.stderr.write(failureText(refusal));
    return exitCode;
  },
});

const accept = defineCommand({
  name: 'accept',
  summary: 'Pin the power files as they are now, signed with your key',
  details: 'Signed files take effect; unsigned and missing ones no longer apply.',
  options: { yes: flag('Do not ask; without a terminal, rye never asks', { short: 'y' }) },
  examples: ['rye lock accept', 'rye lock accept --yes --json'],
  run: async (call) => {
    const accepted = await withRye(call, async (rye) => {
      const { changes, diffs } = await rye.lock.status();
      if (changes.length > 0) {
        await confirm(
          call,
          [
            ...changes.flatMap((change) => [changeLine(change), ...diffLines(change, diffs)]),
            shown`Signed files will take effect; unsigned or missing files will be unpinned.`,
          ],
          shown`Accept these changes?`,
        );
      }
      return await rye.lock.accept();
    });
    const { changes, files, serial, path } = accepted;
    return printResult(call, accepted, () => [
      ...changes.map((change) => shown`accepted ${changeLine(change)}`),
      shown`pinned ${count(files.length, 'power file')} in ${displayPath(path, call.io)}, version ${serial}`,
    ]);
  },
});

function diffLines({ type, id }: GuardChange, diffs: readonly GuardDiff[]): readonly Shown[] {
  const lines = diffs.find((one) => one.type === type && one.id === id)?.lines ?? [];
  return lines.map((line) => oneLine(`  ${line}`));
}

function changeLine({ type, id, change, detail }: GuardChange): Shown {
  const subject = type === null ? detail : `${type} ${id} ${detail}`;
  const kind = change.startsWith('lock_') ? 'lock' : change;
  return oneLine(`${kind} ${subject}`);
}

export const lock = defineGroup({
  details:
    'The lock file pins the configuration, rules and skills of every run. If one changes, rye refuses to run until you accept the change.',
  examples: ['rye lock', 'rye lock accept'],
  defaultCommand: 'status',
  commands: [status, accept],
});
