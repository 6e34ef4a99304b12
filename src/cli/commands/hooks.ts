import { HOOK_EVENTS } from '../../core/hook.ts';
import type { JsonObject } from '../../core/json.ts';
import {
  argument,
  choice,
  defineCommand,
  defineGroup,
  list as listOption,
  optionalArgument,
} from '../command.ts';
import { readValues } from '../input.ts';
import { formatTable, printResult } from '../output.ts';
import { withRye } from '../session.ts';

const list = defineCommand({
  name: 'list',
  summary: 'List the merged hooks of all layers',
  arguments: { directive: optionalArgument('Include the hooks of this directive') },
  examples: ['rye hooks list', 'rye hooks list hello --json'],
  run: async (call) => {
    const hooks = await withRye(call, (rye) => rye.hooks(call.args.directive));
    return printResult(call, { hooks, total: hooks.length }, () => {
      const rows = hooks.map((hook) => [String(hook.layer), hook.event, hook.id, hook.origin]);
      return formatTable(['LAYER', 'EVENT', 'HOOK', 'FROM'], rows, call.io.stdout);
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
    const inputs = await readValues({ pairs: options.input, pairOption: '--input' }, io);
    const hooks = await withRye(call, (rye) => rye.explainHooks(directive, options.event, inputs));
    return printResult(call, { directive, hooks, total: hooks.length }, () => {
      const rows = hooks.map(({ hook, would_fire, depends_on, because }) => [
        would_fire ? 'fires' : depends_on.length > 0 ? 'maybe' : '-',
        String(hook.layer),
        hook.event,
        hook.id,
        because,
      ]);
      return formatTable(['', 'LAYER', 'EVENT', 'HOOK', 'BECAUSE'], rows, io.stdout);
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
      return [JSON.stringify(document, null, 2)];
    });
  },
});

export const hooks = defineGroup({
  examples: ['rye hooks explain hello --event thread_started'],
  commands: [list, explain, schema],
});
