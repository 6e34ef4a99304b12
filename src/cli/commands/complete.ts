import { EXIT } from '../../core/errors.ts';
import { ITEM_TYPES, type ItemType } from '../../core/ids.ts';
import { argument, type Context, defineCommand, optionalArgument } from '../command.ts';
import { withRye, withThreadList } from '../session.ts';

const INPUT = /<input\b[^>]*?\bname="([^"]+)"/g;
/** IDs beyond these are of no use below a cursor. */
const MAX_WORDS = 200;

/**
 * Prints the IDs, models or inputs that a completion script offers for a word that is being typed, one per line. Prints
 * nothing and succeeds where there is nothing to offer, also for a project that can't be read: a shell shows no errors
 * while a person types.
 */
const complete = defineCommand({
  arguments: {
    kind: argument('thread, model, input or the type of an item'),
    prefix: optionalArgument('The word as far as it is typed'),
    directive: optionalArgument('The directive whose inputs are asked for'),
  },
  examples: [],
  run: async (call) => {
    const { kind, prefix = '', directive = '' } = call.args;
    const quiet: Context = { ...call, global: { ...call.global, quiet: true } };
    const words = await wordsOf(quiet, kind, directive).catch(() => []);
    const fitting = [...new Set(words)].filter((word) => word.startsWith(prefix));
    call.io.stdout.write(
      fitting
        .slice(0, MAX_WORDS)
        .map((word) => `${word}\n`)
        .join(''),
    );
    return EXIT.ok;
  },
});

async function wordsOf(
  context: Context,
  kind: string,
  directive: string,
): Promise<readonly string[]> {
  if (kind === 'thread') {
    const records = await withThreadList(context, (list) =>
      list.threads.list({ limit: MAX_WORDS }),
    );
    return records.map(({ thread_id: id }) => id);
  }
  return await withRye(context, async (rye) => {
    if (kind === 'model') return (await rye.models()).flatMap(modelNames);
    if (kind === 'input') {
      const { content } = await rye.items.fetch('directive', directive);
      return [...content.matchAll(INPUT)].map(([, name = '']) => `${name}=`);
    }
    const type = ITEM_TYPES.find((known): known is ItemType => known === kind);
    return type === undefined ? [] : (await rye.items.list(type)).map(({ id }) => id);
  });
}

/** The ID of a model and the tiers that choose it. */
function modelNames(row: { readonly [member: string]: unknown }): readonly string[] {
  const { model, id = model, tiers } = row;
  const names = Array.isArray(tiers) ? tiers : [];
  return [id, ...names].filter((name): name is string => typeof name === 'string');
}

export { complete as '__complete' };
