import { join } from 'node:path';
import { RyeError } from '../../../kernel/core/errors.ts';
import { toText } from '../../../kernel/core/json.ts';
import { didYouMean } from '../../../kernel/core/text.ts';
import type { Sink } from '../../ui/io.ts';
import { displayWidth, wrapText } from '../../ui/terminal-text.ts';
import { oneLine, type Shown, shown, visible } from '../../ui/visible.ts';
import { argument, defineCommand, defineGroup, flag } from '../command.ts';
import { count, fitPath, formatTable, printResult, relativePath, wrapped } from '../output.ts';
import { withRye } from '../session.ts';

const show = defineCommand({
  name: 'show',
  summary: 'List the values that differ from the defaults, with the file that set each',
  details: '--json always prints all values.',
  options: { all: flag('Also the defaults') },
  examples: ['rye config show', 'rye config show --all', 'rye config show --json'],
  run: async (call) => {
    const { io, options } = call;
    const values = await withRye(call, (rye) => rye.config());
    return printResult(call, { values, total: values.length }, () => {
      const listed = options.all ? values : values.filter((value) => value.is_default !== true);
      const others = values.length - listed.length;
      if (others > 0 && !call.global.quiet) {
        io.stderr.write(shown`${count(others, 'default')} not shown: rye config show --all\n`);
      }
      if (listed.length === 0) return [shown`Nothing differs from the defaults`];
      const rows = listed.map(({ path, value, origin }) => [
        path,
        JSON.stringify(value),
        relativePath(origin, io),
      ]);
      return valueLines(rows, io.stdout);
    });
  },
});

/** Formats values as a table, or one below the other on a terminal that the table does not fit. */
function valueLines(rows: readonly (readonly string[])[], sink: Sink): readonly Shown[] {
  const table = formatTable(['PATH', 'VALUE', 'FROM'], rows, { ...sink, isTty: false });
  if (!sink.isTty || table.every((line) => displayWidth(line) <= sink.columns)) return table;
  return rows.flatMap(([name = '', value = '', origin = '']) => [
    ...wrapped(oneLine(name), sink),
    ...wrapText(oneLine(value), sink.columns - 2).map((line) => shown`  ${line}`),
    shown`  ${fitPath(oneLine(origin), sink, 2)}`,
  ]);
}

const get = defineCommand({
  name: 'get',
  summary: 'Print one value, or all values below a path',
  arguments: { path: argument('Dotted path, such as resilience.limits.turns') },
  examples: ['rye config get resilience.limits.turns'],
  run: async (call) =>
    await withRye(call, async (rye) => {
      const { path } = call.args;
      const values = await rye.config(path);
      const [first] = values;
      if (first === undefined) {
        const known = (await rye.config()).map((value) => value.path);
        throw new RyeError('usage', `unknown configuration value ${JSON.stringify(path)}`, {
          hint: didYouMean(path, known) ?? 'List them with: rye config show --all',
        });
      }
      return printResult(call, { values, total: values.length }, () =>
        values.length === 1 && first.path === path
          ? [visible(toText(first.value))]
          : values.map((value) => visible(`${value.path}: ${toText(value.value)}`)),
      );
    }),
});

const path = defineCommand({
  name: 'path',
  summary: 'Print the folders that hold configuration, the higher precedence first',
  examples: ['rye config path'],
  run: async (call) => {
    const folders = await withRye(call, (rye) =>
      Promise.resolve({
        project: join(rye.projectPath, '.ai', 'config'),
        user: join(rye.userSpacePath, '.ai', 'config'),
      }),
    );
    return printResult(call, folders, () => Object.values(folders).map(oneLine));
  },
});

export const config = defineGroup({
  defaultCommand: 'show',
  examples: ['rye config', 'rye config show --all'],
  commands: [show, get, path],
});
