import type { ListedThread } from '../../../kernel/app/api/threads.ts';
import { EXIT } from '../../../kernel/core/errors.ts';
import { ITEM_TYPES, type ItemType } from '../../../kernel/core/ids.ts';
import { argument, type Context, defineCommand, optionalArgument } from '../command.ts';
import { withRye, withThreadList } from '../session.ts';

/**
 * Words that no shell expands or runs. Scripts of earlier versions give the words to the shell, and the text of an unsigned
 * directive must not become a command.
 */
const SAFE = /^(?!-)[\w./:@=+-]+$/;
const INPUT = /<input\b[^>]*?\bname="([^"]+)"/g;
/** IDs beyond these are of no use below a cursor. */
const MAX_WORDS = 200;
/** A person picks a thread from one screen, or types more of its ID. */
const MAX_THREADS = 20;
const MAX_LISTED = 500;

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
    const words = kind === 'thread' ? threadWords(quiet, prefix) : wordsOf(quiet, kind, directive);
    const fitting = [...new Set(await words.catch(() => []))].filter(
      (word) => word.startsWith(prefix) && SAFE.test(word),
    );
    call.io.stdout.writeRaw(
      fitting
        .slice(0, kind === 'thread' ? MAX_THREADS : MAX_WORDS)
        .map((word) => `${word}\n`)
        .join(''),
    );
    return EXIT.ok;
  },
});

/** Returns the sessions, newest first; children only if no session begins with what is typed. */
async function threadWords(context: Context, prefix: string): Promise<readonly string[]> {
  return await withThreadList(context, async ({ threads }) => {
    // mostly one of the newest is meant, and a project may have very many
    const newest = await threads.list({ sessions: true, limit: MAX_LISTED });
    const found = wordsFor(newest, prefix);
    if (newest.length < MAX_LISTED || found.some((id) => id.startsWith(prefix))) return found;
    return wordsFor(await threads.list({ sessions: true }), prefix);
  });
}

function wordsFor(records: readonly ListedThread[], prefix: string): readonly string[] {
  const roots = records.filter(({ parent_id: parent }) => parent === null).map(idOf);
  return roots.some((id) => id.startsWith(prefix)) ? roots : records.map(idOf);
}

function idOf({ chain, thread_id: id }: ListedThread): string {
  return chain?.[0] ?? id;
}

async function wordsOf(
  context: Context,
  kind: string,
  directive: string,
): Promise<readonly string[]> {
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
