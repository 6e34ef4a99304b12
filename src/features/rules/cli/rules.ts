import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import {
  argument,
  choice,
  defineCommand,
  defineGroup,
  integer,
  negatedFlag,
  optionalArgument,
  text,
} from '../../../faces/cli/command.ts';
import { readTextSource } from '../../../faces/cli/input.ts';
import {
  count,
  displayPath,
  formatTable,
  printDocument,
  printLine,
  printLines,
  printResult,
} from '../../../faces/cli/output.ts';
import { withRye } from '../../../faces/cli/session.ts';
import type { Io } from '../../../faces/ui/io.ts';
import { oneLine, shown } from '../../../faces/ui/visible.ts';
import type { RefusedRuleFile } from '../../../kernel/app/api/rules.ts';
import { EXIT } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';

const rule = text('NAME', 'Only this rule');

const list = defineCommand({
  name: 'list',
  summary: 'List the rules of all spaces and how each is used',
  details:
    'stream rules watch the model while it answers, always rules are part of the system prompt, the model can fetch rulebook rules.',
  options: { directive: text('ID', 'Only rules that apply to threads of this directive') },
  examples: ['rye rules list', 'rye rules list --directive hello --json'],
  run: async (call) => {
    const { io, global, options } = call;
    const { rules, refused } = await withRye(call, (rye) => rye.rules.list(compact(options)));
    printResult(call, { rules, refused, total: rules.length }, () => {
      const rows = rules.map(({ bucket, name, space, interrupt, repeat, gap, description }) => [
        bucket,
        name,
        space,
        bucket === 'stream' ? interrupt : '-',
        bucket === 'stream' ? (repeat === 'once' ? repeat : `after ${gap}`) : '-',
        description,
      ]);
      const headings = ['USE', 'RULE', 'SPACE', 'INTERRUPTS', 'REPEATS', 'ABOUT'];
      return formatTable(headings, rows, io.stdout, ['SPACE', 'INTERRUPTS', 'REPEATS']);
    });
    if (global.json) return EXIT.ok;
    for (const { path, message } of refused) {
      io.stderr.write(shown`rye: ignoring ${displayPath(path, io)}: ${oneLine(message)}\n`);
    }
    for (const { name, path, problems } of rules) {
      for (const problem of problems) {
        io.stderr.write(
          shown`rye: rule ${oneLine(name)} (${displayPath(path, io)}): ${oneLine(problem)}\n`,
        );
      }
    }
    return EXIT.ok;
  },
});

const test = defineCommand({
  name: 'test',
  summary: 'Show which rules a text would trigger',
  details:
    'Checks a file as if a tool wrote it, other text as if the model answered it. Rules that are not signed yet are tried too, with a notice. Exits with 1 if there are no rules, or if the text does not trigger --rule.',
  arguments: {
    sample: argument('A text, the path of a file, or - for standard input', { name: 'text|file' }),
  },
  options: {
    rule,
    source: choice('SOURCE', ['text', 'thinking', 'tool'], 'Where the model would write it'),
    tool: text('NAME', 'The tool that would be called (default: write)'),
    path: text('PATH', 'The path that the call would name'),
  },
  examples: [
    "rye rules test 'const a: any = 1;' --path src/a.ts",
    "rye rules test 'git push --force' --tool bash --rule shell-no-force-push",
  ],
  run: async (call) => {
    const { args, options, io, global } = call;
    const { sample } = args;
    const isFile = await isExistingFile(sample, io);
    const content =
      isFile || sample === '-' ? await readTextSource(sample, '<text|file>', io) : sample;
    const path = options.path ?? (isFile ? resolve(io.cwd, sample) : undefined);
    const isCall = options.tool !== undefined || path !== undefined;
    const source = options.source ?? (isCall ? 'tool' : 'text');
    const { checked, hits, notes, unsigned } = await withRye(call, (rye) =>
      rye.rules.test({ ...compact({ ...options, path }), text: content, source }),
    );
    const success = checked > 0 && (options.rule === undefined || hits.length > 0);
    if (!global.json) warn(unsigned, notes, io);
    if (global.json)
      printDocument(io, { success, checked, hits, notes, unsigned, total: hits.length });
    else if (hits.length === 0)
      printLine(io, shown`${count(checked, 'rule')} checked, none triggered`);
    else {
      const rows = hits.map(({ rule: name, interrupts, line }) => [
        name,
        interrupts ? 'interrupts' : 'reminds',
        line === undefined ? '' : `line ${line}`,
      ]);
      printLines(io, formatTable(['RULE', 'EFFECT', 'WHERE'], rows, io.stdout));
    }
    return success ? EXIT.ok : EXIT.failed;
  },
});

/** A rule can be tried before it is signed, but not all of it without a thread. */
function warn(unsigned: readonly RefusedRuleFile[], notes: readonly string[], io: Io): void {
  for (const note of notes) io.stderr.write(shown`rye: ${oneLine(note)}\n`);
  for (const { path, message } of unsigned) {
    io.stderr.write(shown`rye: no thread uses ${displayPath(path, io)} yet: ${oneLine(message)}\n`);
  }
}

async function isExistingFile(name: string, io: Io): Promise<boolean> {
  if (name.includes('\0')) return false;
  const stats = await stat(resolve(io.cwd, name)).catch(() => undefined);
  return stats?.isFile() ?? false;
}

const scan = defineCommand({
  name: 'scan',
  summary: 'Check existing files against the rules',
  details: 'Checks each file as if a tool wrote it. Exits with 1 if a file triggers a rule.',
  arguments: { folder: optionalArgument('A folder or file (default: the project)') },
  options: {
    rule,
    gitignore: negatedFlag('Check ignored files too'),
    maxBytes: integer('N', 'Skip larger files (default: 5242880)'),
  },
  examples: ['rye rules scan src', 'rye rules scan --rule ts-no-any --json'],
  run: async (call) => {
    const { args, options, io, global } = call;
    const { files, skipped, hits, notes, unsigned } = await withRye(call, (rye) =>
      rye.rules.scan({
        folder: args.folder === undefined ? rye.projectPath : resolve(io.cwd, args.folder),
        gitignore: options.gitignore,
        ...compact({ rule: options.rule, maxBytes: options.maxBytes }),
      }),
    );
    const success = hits.length === 0;
    if (global.json) {
      printDocument(io, { success, files, skipped, hits, notes, unsigned, total: hits.length });
    } else {
      warn(unsigned, notes, io);
      for (const { path, line, rule: name } of hits) {
        printLine(
          io,
          shown`${displayPath(path, io)}${line === undefined ? '' : shown`:${line}`}: ${oneLine(name)}`,
        );
      }
      const rest = skipped === 0 ? '' : shown`, ${skipped} skipped`;
      printLine(io, shown`${count(files, 'file')} checked${rest}, ${count(hits.length, 'hit')}`);
    }
    return success ? EXIT.ok : EXIT.failed;
  },
});

export const rules = defineGroup({
  defaultCommand: 'list',
  examples: ['rye rules', 'rye rules list --json'],
  commands: [list, test, scan],
});
