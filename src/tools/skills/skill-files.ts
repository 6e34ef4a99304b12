import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import { readSkillFiles, type SkillFile } from '../../items/skill-files-fs.ts';
import { confine } from '../paths.ts';
import { makePrivateFolder } from '../private-folder.ts';
import { runScript, type ScriptOptions, scriptCommand } from '../script.ts';
import { CAUTIOUS_TRAITS, type ToolContext, type ToolOutput } from '../tool.ts';
import type { OfferedSkill } from './offered-skill.ts';

const MAX_TEXT_BYTES = 256 * 1024;

/** A file below the skill's folder as text, links resolved, its signature checked. */
export async function readSkillText(offered: OfferedSkill, path: string): Promise<string> {
  const file = await confinedFile(offered, path);
  if (file.size > MAX_TEXT_BYTES) {
    throw new RyeError('item_too_large', `${path} is larger than ${MAX_TEXT_BYTES} bytes`);
  }
  const bytes = await readFile(file.real);
  offered.admit({ path: file.path, bytes }, 'read');
  if (bytes.includes(0)) throw new RyeError('invalid_input', `${path} is not text`);
  return bytes.toString('utf8');
}

async function confinedFile({ id, folder }: OfferedSkill, path: string) {
  const rules = { projectPath: folder, allow: [], threadId: '' };
  const { real, stats } = await confine(path, 'read', rules);
  if (stats?.isFile()) {
    return { real, size: stats.size, path: relative(folder, real).split(sep).join('/') };
  }
  throw new RyeError('item_not_found', `the skill ${id} has no file ${path}`);
}

/** A call of a script: its path, words for its command line, and an object for its stdin. */
export interface ScriptCall {
  readonly path: string;
  readonly args: readonly string[];
  readonly params: JsonObject;
}

/**
 * Runs a script of a skill by the contract of tools. It and its neighbours run from a private copy of the bytes that were
 * signed, which is removed afterwards; a neighbour that was never signed is not part of the copy.
 */
export async function runSkillScript(
  offered: OfferedSkill,
  { path, args, params }: ScriptCall,
  { context, options }: { readonly context: ToolContext; readonly options: ScriptOptions },
): Promise<ToolOutput> {
  const { id } = offered;
  const script = await confinedFile(offered, path);
  const files = admittedFiles(offered, script.path);
  const copy = await makePrivateFolder('skill');
  try {
    for (const file of files) {
      const target = join(copy.path, file.path);
      await mkdir(dirname(target), { recursive: true, mode: 0o700 });
      await writeFile(target, file.bytes, { mode: 0o600, flag: 'wx' });
    }
    const name = `${id}/${script.path}`;
    const command = scriptCommand(name, script.real, join(copy.path, script.path));
    return await runScript({
      id: name,
      command: { ...command, args: [...command.args, ...args] },
      input: params,
      timeoutSeconds: CAUTIOUS_TRAITS.timeout_seconds,
      network: CAUTIOUS_TRAITS.network,
      context,
      options,
    });
  } finally {
    await copy.remove();
  }
}

/** The script and its neighbours; one that was changed after it was signed refuses the whole run. */
function admittedFiles(offered: OfferedSkill, script: string): readonly SkillFile[] {
  return readSkillFiles(offered.folder).filter((file) => {
    try {
      offered.admit(file, 'run');
      return true;
    } catch (error) {
      const isLeftOut =
        file.path !== script && error instanceof RyeError && error.code === 'unsigned';
      if (isLeftOut) return false;
      throw error;
    }
  });
}
