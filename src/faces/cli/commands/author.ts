import { readFileSync } from 'node:fs';
import { join, sep } from 'node:path';
import type { LocatedItem } from '../../../kernel/app/api/items.ts';
import type { Rye } from '../../../kernel/app/api/rye.ts';
import { EXIT, type ExitCode, RyeError } from '../../../kernel/core/errors.ts';
import { ITEM_TYPES, type SignableType } from '../../../kernel/core/ids.ts';
import { editorOf, runEditor } from '../../ui/editor-program.ts';
import { oneLine, shown } from '../../ui/visible.ts';
import { argument, type Context, choice, defineCommand, optionalArgument } from '../command.ts';
import { typeArgument } from '../input.ts';
import { displayPath, printJsonLine, printLine, printResult } from '../output.ts';
import { withRye } from '../session.ts';
import { printOutcome, printSigned, signable } from '../signed.ts';

const NEW_TYPES = [...ITEM_TYPES, 'hook'] as const;

const newItem = defineCommand({
  details:
    'The file passes `rye validate TYPE ID`. It is not signed: edit it first. A hook is added to .ai/config/agent/hooks.yaml.',
  arguments: {
    type: typeArgument(NEW_TYPES, 'directive, tool, knowledge, rule, skill or hook'),
    id: argument('Path below the type folder without extension, such as reports/weekly'),
  },
  examples: ['rye new directive reports/weekly', 'rye new tool team/count', 'rye new hook no_push'],
  run: async (call) => {
    const { type, id } = call.args;
    const item = await withRye(call, (rye) => rye.items.create(type, id));
    printResult(call, item, () => [shown`created ${displayPath(item.path, call.io)}`]);
    if (!call.global.json && !call.global.quiet)
      call.io.stderr.write(shown`next: rye edit ${type} ${oneLine(id)}\n`);
    return EXIT.ok;
  },
});

export { newItem as new };

const EDIT_TYPES: readonly string[] = [...ITEM_TYPES, 'config', 'hook'];

export const edit = defineCommand({
  details:
    'The editor is $VISUAL, else $EDITOR. After it closes, the file is validated and signed; a mistake leaves it unsigned. On a terminal you may edit it again.',
  arguments: {
    first: argument('The ID of an item, or its type if the ID follows', { name: 'id|type' }),
    second: optionalArgument('The ID', { name: 'id', item: {} }),
  },
  options: {
    as: choice(
      'FORMAT',
      ['xml', 'yaml'],
      'Write a directive in this notation instead of opening the editor',
    ),
  },
  examples: [
    'rye edit reports/weekly',
    'rye edit config agent/hooks',
    'rye edit hook no_push',
    'rye edit directive reports/weekly --as yaml',
  ],
  run: async (call) => {
    const { first, second } = call.args;
    const { io } = call;
    const wanted = second === undefined ? { id: first } : { type: typeNamed(first), id: second };
    const { type, id, path: file } = await withRye(call, (rye) => locate(rye, wanted));
    if (call.options.as !== undefined) {
      await rewrite(file, type, call.options.as);
      return printSigned(call, await withRye(call, (rye) => rye.items.sign(type, id)));
    }
    const editor = editorFor(io.env);
    for (;;) {
      const before = readFileSync(file);
      await openEditor(editor, file, io.env);
      const isSame = before.equals(readFileSync(file));
      const items = await withRye(call, (rye) => rye.items.sign(type, id));
      const code = printSigned(call, items);
      const mayRepeat = io.stdinIsTty && io.stderr.isTty && !call.global.json;
      if (code === EXIT.ok || !mayRepeat) return code;
      const answer = await io.ask(shown`${isSame ? 'Nothing changed. ' : ''}Edit it again? [Y/n] `);
      if (/^n/i.test(answer.trim()) || answer === '') return code;
    }
  },
});

function typeNamed(word: string): string {
  const name = word.toLowerCase();
  const type = EDIT_TYPES.find((one) => one === name || `${one}s` === name);
  if (type !== undefined) return type;
  throw new RyeError('usage', `unknown type ${JSON.stringify(word)}`, {
    hint: `Use one of: ${EDIT_TYPES.join(', ')}.`,
  });
}

/** Writes a directive in another notation. It stays as it is if that cannot express it. */
async function rewrite(file: string, type: string, as: 'xml' | 'yaml'): Promise<void> {
  if (type !== 'directive') {
    throw new RyeError('usage', `--as is for directives, and this is a ${type}`, {
      hint: 'Without --as, the command opens your editor.',
    });
  }
  const [{ convertDirective }, { writeOutput }] = await Promise.all([
    import('../../../kernel/app/directive-notation.ts'),
    import('../../../kernel/disk/whole-file.ts'),
  ]);
  const text = readFileSync(file, 'utf8');
  const converted = convertDirective(text, file, as);
  if (converted !== text) writeOutput(file, converted, { hint: 'The directive is unchanged.' });
}

/** Finds the one file to edit; an item of the system space has to be copied first. */
async function locate(
  rye: Rye,
  { type, id }: { readonly type?: string; readonly id: string },
): Promise<LocatedItem> {
  const target = type === 'hook' ? await signable(rye, 'hook', id) : { type, pattern: id };
  const all = await rye.items.locate(target.pattern);
  const found = all.filter((item) => target.type === undefined || item.type === target.type);
  const writable = found.filter(({ space }) => space !== 'system');
  const types = new Set(writable.map((item) => item.type));
  const [first] = writable;
  if (types.size > 1) {
    throw new RyeError('ambiguous', `${id} is a ${[...types].join(' and a ')}`, {
      hint: `Name the type: rye edit ${[...types][0] ?? ''} ${id}`,
    });
  }
  if (first !== undefined) return first;
  const [shipped] = found;
  if (shipped !== undefined) {
    const isClone = shipped.path.startsWith(join(rye.projectPath, '.ai') + sep);
    throw new RyeError('read_only_space', `the ${shipped.type} ${id} is part of rye`, {
      hint: isClone
        ? `Edit ${shipped.path} itself, then run: npm run build`
        : `Copy it first: rye fetch ${shipped.type} ${id} --copy-to project`,
    });
  }
  throw new RyeError('item_not_found', `unknown ${type ?? 'item'} ${id}`, {
    hint: `Create it: rye new ${type ?? 'directive'} ${id}`,
  });
}

function editorFor(env: Readonly<Record<string, string | undefined>>): string {
  const editor = editorOf(env);
  if (editor !== undefined) return editor;
  throw new RyeError('usage', 'no editor is set', {
    hint: 'Set EDITOR, for example: export EDITOR=vi',
  });
}

async function openEditor(
  editor: string,
  path: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<void> {
  if (await runEditor(editor, path, env)) return;
  throw new RyeError('usage', `the editor failed: ${oneLine(editor)}`, {
    hint: 'Nothing was signed. Check EDITOR and VISUAL.',
  });
}

/** Signs what is saved until the command is cancelled. */
export async function watchAndSign(
  context: Context,
  { type, pattern }: { readonly type?: SignableType | 'hook'; readonly pattern?: string },
): Promise<ExitCode> {
  const { io, global } = context;
  const { signOnSave } = await import('../../../kernel/app/sign-on-save.ts');
  const { compileGlob } = await import('../../../kernel/app/items.ts');
  const wanted = type === 'hook' ? 'config' : type;
  const matches = await compileGlob(type === 'hook' ? 'agent/hooks' : (pattern ?? '**'));
  const cancelled = io.cancellation();
  const { projectPath } = await withRye(context, async (rye) => {
    await rye.keys.export().catch(async (error: unknown) => {
      if (!(error instanceof RyeError) || error.code !== 'key_missing') throw error;
      const { key_id: key } = await rye.keys.init();
      if (!global.quiet) io.stderr.write(shown`rye: new signing key ${oneLine(key)}\n`);
    });
    return { projectPath: rye.projectPath };
  });
  await signOnSave({
    projectPath,
    signal: AbortSignal.any([cancelled, io.outputClosed]),
    accepts: (itemType, id) => (wanted === undefined || itemType === wanted) && matches(id),
    open: async (action) => await withRye(context, action),
    ready: () => {
      if (!global.quiet) io.stderr.write(shown`rye: signing what you save; Ctrl-C ends\n`);
    },
    report: (saved) => {
      if (global.json) printJsonLine(io, saved);
      else if ('outcome' in saved) printOutcome(saved.outcome, io);
      else printLine(io, oneLine(`skipped ${saved.type} ${saved.id}: ${saved.skipped}`));
    },
  });
  return cancelled.aborted ? EXIT.cancelled : EXIT.ok;
}
