import { HOOK_EVENTS } from '../../../kernel/core/hook.ts';
import type { JsonObject } from '../../../kernel/core/json.ts';
import type { Sink } from '../../ui/io.ts';
import { displayWidth } from '../../ui/terminal-text.ts';
import { oneLine, type Shown, shown, visible } from '../../ui/visible.ts';
import {
  argument,
  choice,
  defineCommand,
  defineGroup,
  list as listOption,
  optionalArgument,
} from '../command.ts';
import { readValues } from '../input.ts';
import { fitPath, formatTable, printResult, relativePath } from '../output.ts';
import { withRye } from '../session.ts';

const HEADINGS = ['LAYER', 'EVENT', 'HOOK', 'FROM'];

/** The hooks of one layer and file, as rows of `rye hooks list`. */
interface HookFile {
  readonly layer: string;
  readonly path: string;
  readonly rows: readonly (readonly string[])[];
}

/** Groups rows that follow each other by layer and file, and moves the line of each into a column. */
function filesOf(rows: readonly (readonly string[])[]): readonly HookFile[] {
  const files: (HookFile & { readonly rows: (readonly string[])[] })[] = [];
  for (const [layer = '', event = '', hook = '', origin = ''] of rows) {
    const line = /:(\d+)$/.exec(origin)?.[1] ?? '';
    const path = origin.slice(0, origin.length - (line === '' ? 0 : line.length + 1));
    const last = files.at(-1);
    const row = [line, event, hook];
    if (last?.layer === layer && last.path === path) last.rows.push(row);
    else files.push({ layer, path, rows: [row] });
  }
  return files;
}

/** A file with its hooks below it, for a terminal that is too narrow for the path in each row. */
function section({ layer, path, rows }: HookFile, sink: Sink): readonly Shown[] {
  const head = oneLine(`layer ${layer}: `);
  const room = { ...sink, columns: Math.max(1, sink.columns - 2) };
  return [
    shown`${head}${fitPath(oneLine(path), sink, head.length)}`,
    ...formatTable(['LINE', 'EVENT', 'HOOK'], rows, room).map((line) => shown`  ${line}`),
    shown``,
  ];
}

const list = defineCommand({
  name: 'list',
  summary: 'List the merged hooks of all layers',
  arguments: { directive: optionalArgument('Include the hooks of this directive') },
  examples: ['rye hooks list', 'rye hooks list hello --json'],
  run: async (call) => {
    const hooks = await withRye(call, (rye) => rye.hooks(call.args.directive));
    return printResult(call, { hooks, total: hooks.length }, () => {
      const { stdout } = call.io;
      const rows = hooks.map((hook) => [
        String(hook.layer),
        hook.event,
        hook.id,
        relativePath(hook.origin, call.io),
      ]);
      const whole = formatTable(HEADINGS, rows, { ...stdout, isTty: false });
      const fits = whole.every((line) => displayWidth(line) <= stdout.columns);
      return fits || !stdout.isTty ? whole : filesOf(rows).flatMap((file) => section(file, stdout));
    });
  },
});

const explain = defineCommand({
  name: 'explain',
  summary: 'Explain which hooks would fire for a directive',
  arguments: { directive: argument('ID of the directive') },
  options: {
    event: choice(
      'EVENT',
      HOOK_EVENTS,
      'Only hooks on this event, such as error; see docs/hooks.md',
    ),
    input: listOption('NAME=VALUE', 'An input that conditions may read'),
  },
  examples: ['rye hooks explain hello --event error'],
  run: async (call) => {
    const { args, options, io } = call;
    const { directive } = args;
    const inputs = await readValues({ pairs: options.input, pairOption: '--input' }, call);
    const hooks = await withRye(call, (rye) => rye.explainHooks(directive, options.event, inputs));
    return printResult(call, { directive, hooks, total: hooks.length }, () => {
      const rows = hooks.map(({ hook, would_fire, depends_on, because }) => [
        would_fire ? 'fires' : depends_on.length > 0 ? 'maybe' : '-',
        String(hook.layer),
        hook.event,
        hook.id,
        because,
      ]);
      const headings = ['', 'LAYER', 'EVENT', 'HOOK', 'BECAUSE'];
      return formatTable(headings, rows, io.stdout, ['LAYER', 'EVENT']);
    });
  },
});

const schema = defineCommand({
  name: 'schema',
  summary: 'Print the values that hooks on an event can read, as JSON Schema',
  arguments: { event: optionalArgument('Only this event') },
  examples: ['rye hooks schema tool_gate'],
  run: async (call) => {
    const byEvent = await withRye(call, (rye) => rye.hookSchemas(call.args.event));
    const schemas = Object.entries(byEvent).map(([event, value]) => ({ event, schema: value }));
    return printResult(call, { schemas, total: schemas.length }, () => {
      const [first, ...others] = schemas;
      const document: JsonObject =
        first !== undefined && others.length === 0 ? first.schema : byEvent;
      return [visible(JSON.stringify(document, null, 2))];
    });
  },
});

export const hooks = defineGroup({
  defaultCommand: 'list',
  examples: ['rye hooks', 'rye hooks explain hello --event thread_started'],
  commands: [list, explain, schema],
});
