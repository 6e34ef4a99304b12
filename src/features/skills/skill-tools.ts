import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { messageOf, RyeError } from '../../kernel/core/errors.ts';
import { wireName } from '../../kernel/core/ids.ts';
import { isJsonObject, type JsonObject, toText } from '../../kernel/core/json.ts';
import { escapeXml, nearNames } from '../../kernel/core/text.ts';
import { readSkillFiles, type SkillFile, skillPaths } from '../../kernel/items/skill-files-fs.ts';
import { makePrivateFolder } from '../../kernel/tools/kill-guard.ts';
import { confine } from '../../kernel/tools/paths.ts';
import { runScript, type ScriptOptions, scriptCommand } from '../../kernel/tools/script.ts';
import {
  needs,
  SKILLS_READ_ID,
  SKILLS_RUN_ID,
  SKILLS_USE_ID,
} from '../../kernel/tools/skill-needs.ts';
import {
  CAUTIOUS_TRAITS,
  errorOutput,
  READING_TRAITS,
  type Tool,
  type ToolContext,
  type ToolOutput,
  textOutput,
} from '../../kernel/tools/tool.ts';
import { type ActiveSkills, type OfferedSkill, toolIdsOf } from './active-skills.ts';

/** Files that are named when a skill is loaded. */
const MAX_LISTED = 100;

type Denies = (real: string) => boolean;

export interface SkillToolsOptions {
  /** All skills of the thread, also those that are not listed: they decide which tools it has. */
  readonly granted: readonly OfferedSkill[];
  readonly skills: readonly OfferedSkill[];
  readonly active: ActiveSkills;
  readonly scripts: ScriptOptions;
  /** True for a file, by its real path, that tools must not read. */
  readonly denies: Denies;
  /** Makes held tools callable that a skill names, and gives the wire names of those that can be called. */
  readonly unlock: (toolIds: readonly string[]) => readonly string[];
  /** Called with each skill that becomes active, and the wire names of the tools that it makes callable. */
  readonly onActivated?: (skill: string, tools: readonly string[]) => void;
}

/** Renders the skills for the system text: ids and descriptions, sorted. `skills_use` returns the bodies. */
export function skillCatalog(skills: readonly OfferedSkill[]): string {
  if (skills.length === 0) return '';
  const lines = skills
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
    .map(
      ({ id, skill }) => `<skill name="${escapeXml(id)}">${escapeXml(skill.description)}</skill>`,
    );
  return `<skills>\nLoad one with skills_use when a task fits its description.\n${lines.join('\n')}\n</skills>`;
}

const NAME = { type: 'string', description: 'As listed.' };
const PATH = { type: 'string', description: 'Relative to the folder of the skill.' };
const READING = { ...READING_TRAITS, timeout_seconds: 30 };

/**
 * `skills_use`, `skills_read` and, where a skill may be executed, `skills_run_script`, after the Agent Skills
 * specification. Each call needs the capability to fetch or execute that very skill. `allowed-tools` grants nothing: it
 * makes tools that are held callable without a search for them.
 */
export function createSkillTools(options: SkillToolsOptions): readonly Tool[] {
  const { granted, skills } = options;
  if (granted.length === 0) return [];
  const find = (input: JsonObject): OfferedSkill => {
    const name = toText(input['name'] ?? '');
    const offered = skills.find(({ id }) => id === name);
    if (offered) return offered;
    const near = nearNames(
      name,
      skills.map(({ id }) => id),
    );
    const hint = near.length === 0 ? '' : ` Did you mean ${near.join(' or ')}?`;
    throw new RyeError('item_not_found', `Unknown skill ${name}.${hint}`);
  };
  const tools = [useTool(options, find), readTool(options, find)];
  return granted.some(({ mayRun }) => mayRun) ? [...tools, runTool(options, find)] : tools;
}

type Find = (input: JsonObject) => OfferedSkill;

function useTool({ active, unlock, onActivated, denies }: SkillToolsOptions, find: Find): Tool {
  return {
    id: SKILLS_USE_ID,
    description: 'Loads the instructions of a skill.',
    inputSchema: schemaOf({ name: NAME }, ['name']),
    traits: READING,
    need: needs('fetch'),
    execute: answering((input) => {
      const offered = find(input);
      offered.admitWhole();
      const isNew = !active.has(offered.id);
      const refusal = active.activate(offered.id);
      if (refusal !== undefined) return errorOutput(refusal, { code: 'invalid_input' });
      const callable = unlock(toolIdsOf(offered.skill.allowedTools));
      if (isNew) onActivated?.(offered.id, callable);
      return textOutput(skillText(offered, callable, denies), {
        skill: offered.id,
        tools: [...callable],
      });
    }),
  };
}

function readTool({ active, denies }: SkillToolsOptions, find: Find): Tool {
  return {
    id: SKILLS_READ_ID,
    description: 'Reads a file of a skill that was loaded with skills_use.',
    inputSchema: schemaOf({ name: NAME, path: PATH }, ['name', 'path']),
    traits: READING,
    need: needs('fetch'),
    execute: answering(async (input) => {
      const offered = activeOne(find(input), active);
      return textOutput(await readSkillText(offered, toText(input['path'] ?? ''), denies));
    }),
  };
}

function runTool({ active, scripts, denies }: SkillToolsOptions, find: Find): Tool {
  return {
    id: SKILLS_RUN_ID,
    description:
      'Runs a script of a skill that was loaded with skills_use: `args` are the words of its command line, `params` comes as JSON on its stdin. It runs in the project folder.',
    inputSchema: schemaOf(
      {
        name: NAME,
        path: PATH,
        args: { type: 'array', items: { type: 'string' } },
        params: { type: 'object' },
      },
      ['name', 'path'],
    ),
    traits: CAUTIOUS_TRAITS,
    need: needs('execute'),
    ranSha256: (input) => scriptSha256(find, input, denies),
    execute: answering(async (input, context) => {
      const offered = activeOne(find(input), active);
      const { path, args, params } = input;
      const call = {
        path: toText(path ?? ''),
        args: Array.isArray(args) ? args.map((word) => toText(word)) : [],
        params: isJsonObject(params) ? params : {},
      };
      return await runSkillScript(offered, call, context, { scripts, denies });
    }),
  };
}

function schemaOf(properties: JsonObject, required: readonly string[]): JsonObject {
  return { type: 'object', properties, required, additionalProperties: false };
}

function activeOne(offered: OfferedSkill, active: ActiveSkills): OfferedSkill {
  if (active.has(offered.id)) return offered;
  throw new RyeError(
    'usage',
    `Load the skill with ${wireName(SKILLS_USE_ID)} {"name": "${offered.id}"} first.`,
  );
}

/** Turns expected failures into error outputs for the model. */
function answering(
  run: (input: JsonObject, context: ToolContext) => ToolOutput | Promise<ToolOutput>,
): Tool['execute'] {
  return async (input, context) => {
    try {
      return await run(input, context);
    } catch (error) {
      const code = error instanceof RyeError ? error.code : 'tool_failed';
      return errorOutput(messageOf(error), { code });
    }
  };
}

/** Returns the instructions of a skill for the model. */
export function skillText(
  { id, folder, skill, mayRun }: OfferedSkill,
  callable: readonly string[],
  denies: Denies,
): string {
  const files = skillPaths(folder)
    .filter((path) => path !== 'SKILL.md' && !denies(join(folder, path)))
    .slice(0, MAX_LISTED);
  const { allowedTools, compatibility } = skill;
  const facts = [
    ...(compatibility === undefined ? [] : [`Compatibility: ${compatibility}`]),
    ...(allowedTools.length === 0
      ? []
      : [
          `Meant to be used with: ${allowedTools.join(' ')}`,
          callable.length === 0
            ? 'You can call none of these tools.'
            : `Of these you can call: ${callable.join(', ')}`,
        ]),
    ...(files.length === 0 ? [] : [`Files, to read with skills_read: ${files.join(', ')}`]),
    ...(files.length > 0 && mayRun ? ['Its scripts run with skills_run_script.'] : []),
  ];
  const body = skill.body.trim().replaceAll('</skill_content', '&lt;/skill_content');
  return [`<skill_content name="${escapeXml(id)}">`, body, '</skill_content>', ...facts].join('\n');
}

const MAX_TEXT_BYTES = 256 * 1024;

/** A file below the skill's folder as text, links resolved, its signature checked. */
async function readSkillText(offered: OfferedSkill, path: string, denies: Denies): Promise<string> {
  const file = await confinedFile(offered, path, denies);
  if (file.size > MAX_TEXT_BYTES) {
    throw new RyeError('item_too_large', `${path} is larger than ${MAX_TEXT_BYTES} bytes`);
  }
  const bytes = await readFile(file.real);
  offered.admit({ path: file.path, bytes }, 'read');
  if (bytes.includes(0)) throw new RyeError('invalid_input', `${path} is not text`);
  return bytes.toString('utf8');
}

async function confinedFile({ id, folder }: OfferedSkill, path: string, denies: Denies) {
  const rules = { projectPath: folder, allow: [], threadId: '', denies };
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
 * Runs a script of a skill by the contract of tools. It and its neighbors run from a private copy of the bytes that were
 * signed, which is removed afterwards; a neighbor that was never signed is not part of the copy.
 */
async function runSkillScript(
  offered: OfferedSkill,
  { path, args, params }: ScriptCall,
  context: ToolContext,
  { scripts, denies }: Pick<SkillToolsOptions, 'scripts' | 'denies'>,
): Promise<ToolOutput> {
  const { id } = offered;
  const script = await confinedFile(offered, path, denies);
  const files = admittedFiles(offered, script.path, denies);
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
      folder: copy.path,
      input: params,
      timeoutSeconds: CAUTIOUS_TRAITS.timeout_seconds,
      network: CAUTIOUS_TRAITS.network,
      context,
      options: scripts,
    });
  } finally {
    await copy.remove();
  }
}

/** Returns the hash of everything that {@link runSkillScript} copies and runs; undefined if it would refuse. */
function scriptSha256(find: Find, { name, path }: JsonObject, denies: Denies): string | undefined {
  try {
    const files = admittedFiles(find({ name: name ?? '' }), toText(path ?? ''), denies);
    const hash = createHash('sha256');
    for (const file of files) {
      hash.update(JSON.stringify([file.path, file.bytes.byteLength])).update(file.bytes);
    }
    return hash.digest('hex');
  } catch {
    return undefined; // the call itself reports why
  }
}

/** The script and its neighbors; one that was changed after it was signed refuses the whole run. */
function admittedFiles(
  offered: OfferedSkill,
  script: string,
  denies: Denies,
): readonly SkillFile[] {
  return readSkillFiles(offered.folder).filter((file) => {
    if (denies(join(offered.folder, file.path))) return false;
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
