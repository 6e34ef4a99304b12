import { createHash } from 'node:crypto';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import { flag, objectSchema, text } from '../arguments.ts';
import { exclusively, loadText, writeText } from '../files.ts';
import { guarded } from '../guard.ts';
import { confine } from '../paths.ts';
import type { Tool, ToolContext, ToolOutput } from '../tool.ts';
import { textOutput } from '../tool.ts';
import { applyEdit, type TextEdit } from './edit-text.ts';
import { type BuiltinOptions, PATH_PROPERTY, rulesOf } from './options.ts';
import { CHANGE_TRAITS, writtenPaths } from './write.ts';

const EDIT_PROPERTIES: JsonObject = {
  old_string: {
    type: 'string',
    description:
      'Text to replace, exactly as in the file, with enough lines around it to be unique.',
  },
  new_string: { type: 'string', description: 'Text to put in its place.' },
  replace_all: { type: 'boolean', description: 'Replace every occurrence. Default false.' },
};

/** `rye/file-system/edit`: one exact replacement. `data`: `path`, `replacements`, `line` of the first, `bytes`. */
export function createEditTool(options: BuiltinOptions): Tool {
  return {
    id: 'rye/file-system/edit',
    description:
      'Replaces exact text in a file. Fails when the text is not found or, without replace_all, occurs more than once. Pasted line numbers of read are ignored.',
    inputSchema: objectSchema({ path: PATH_PROPERTY, ...EDIT_PROPERTIES }, [
      'path',
      'old_string',
      'new_string',
    ]),
    traits: CHANGE_TRAITS,
    writes: writtenPaths,
    execute: (input, context) =>
      guarded(() => change({ input, edits: [editOf(input)], context, options })),
  };
}

/** `rye/file-system/multi_edit`: several replacements in one file, in order, all or none. `data` as for edit. */
export function createMultiEditTool(options: BuiltinOptions): Tool {
  return {
    id: 'rye/file-system/multi_edit',
    description:
      'Applies several replacements to one file, in order, each on the result of the one before. All or none: if one fails, nothing is written.',
    inputSchema: objectSchema(
      {
        path: PATH_PROPERTY,
        edits: {
          type: 'array',
          minItems: 1,
          items: objectSchema(EDIT_PROPERTIES, ['old_string', 'new_string']),
        },
      },
      ['path', 'edits'],
    ),
    traits: CHANGE_TRAITS,
    writes: writtenPaths,
    execute: (input, context) =>
      guarded(() => change({ input, edits: editsOf(input), context, options })),
  };
}

interface Change {
  readonly input: JsonObject;
  readonly edits: readonly TextEdit[];
  readonly context: ToolContext;
  readonly options: BuiltinOptions;
}

async function change({ input, edits, context, options }: Change): Promise<ToolOutput> {
  const path = await confine(text(input, 'path'), 'write', rulesOf(options, context));
  return exclusively(path.real, async () => {
    const loaded = await loadText(path);
    const problem = options.memory?.editProblem(path.real, sha256(loaded.bytes));
    if (problem !== undefined) {
      throw new RyeError(
        'invalid_input',
        `${JSON.stringify(path.shown)} was not edited: ${problem}`,
        {
          hint: 'Read it with rye_file_system_read, then edit.',
        },
      );
    }
    const edited = applyAll(loaded.text, edits, path.shown);
    if (context.signal.aborted) throw new RyeError('cancelled', 'the edit was cancelled');
    await writeText({
      path,
      content: edited.content,
      expected: loaded.version,
      mode: loaded.mode,
    });
    options.memory?.recordChange(path.real, sha256(edited.content));
    const { replacements, line } = edited;
    const times = replacements === 1 ? '1 replacement' : `${replacements} replacements`;
    return textOutput(`Edited ${path.shown}: ${times}, the first in line ${line}.`, {
      path: path.shown,
      replacements,
      line,
      bytes: Buffer.byteLength(edited.content),
    });
  });
}

interface Edited {
  readonly content: string;
  readonly replacements: number;
  readonly line: number;
}

function applyAll(original: string, edits: readonly TextEdit[], shown: string): Edited {
  let edited: Edited = { content: original, replacements: 0, line: 0 };
  for (const [index, edit] of edits.entries()) {
    const result = applyEdit(edited.content, edit);
    if (!result.ok) {
      const which =
        edits.length === 1
          ? ''
          : ` Edit ${index + 1} of ${edits.length} failed, nothing was written.`;
      throw new RyeError(
        'invalid_input',
        `${JSON.stringify(shown)} was not edited.${which} ${result.problem}`,
      );
    }
    edited = {
      content: result.content,
      replacements: edited.replacements + result.replacements,
      line: index === 0 ? result.line : edited.line,
    };
  }
  return edited;
}

function editsOf(input: JsonObject): TextEdit[] {
  // The schema guarantees an array of edit objects.
  const edits = input['edits'] as readonly JsonObject[];
  return edits.map(editOf);
}

function editOf(input: JsonObject): TextEdit {
  return {
    oldString: text(input, 'old_string'),
    newString: text(input, 'new_string'),
    replaceAll: flag(input, 'replace_all'),
  };
}

function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}
