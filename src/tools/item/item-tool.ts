import { mkdir, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import type { ToolFile } from '../../items/tool-files-fs.ts';
import { guarded } from '../guard.ts';
import { makePrivateFolder } from '../private-folder.ts';
import {
  type Command,
  nodeCommand,
  runScript,
  type ScriptOptions,
  scriptCommand,
} from '../script.ts';
import type { Tool, ToolContext, ToolOutput, ToolTraits } from '../tool.ts';
import { CAUTIOUS_TRAITS } from '../tool.ts';
import { coveredText } from './run-copy.ts';
import { type ResolveSecret, resolveSecrets } from './secrets.ts';

/** How the file of a tool is run. */
export type ItemToolKind =
  | 'javascript'
  | 'typescript'
  | 'python'
  | 'shell'
  | 'executable'
  | 'manifest';

/** A tool item whose signature has been checked. */
export interface ItemToolSource {
  readonly id: string;
  /** Absolute path that the bytes were read from. */
  readonly path: string;
  readonly kind: ItemToolKind;
  /** Program and arguments of a manifest; `{tool_dir}` and `{project}` are replaced in each. */
  readonly command?: readonly string[];
  /** What stands in `{tool_dir}` while it runs: the files that the manifest pins, as they were checked. */
  readonly files?: readonly ToolFile[];
  readonly description: string;
  readonly inputSchema: JsonObject;
  /** Environment variables that the tool asks for; names that speak of secrets are not passed. */
  readonly env?: readonly string[];
  /** What the tool declares; the rest is cautious. */
  readonly traits: Partial<ToolTraits>;
  /** The bytes that were verified. These run, not what stands in the file by then. */
  readonly content: string | Uint8Array;
}

export interface ItemToolOptions extends ScriptOptions {
  /** Absent: there are no secrets. */
  readonly resolveSecret?: ResolveSecret;
  /** Folder for private run folders. Default: the system's temporary folder. */
  readonly runFolder?: string;
}

/**
 * A tool item as a {@link Tool}: parameters as one JSON document on stdin, result as JSON or text on stdout,
 * diagnostics on stderr, success by exit code 0. JSON that is not an object comes as `data.result`; an object
 * with `"success": false` is an error output. The verified bytes are run from a private folder that is removed
 * afterwards, with the project as working directory, so neighbouring files are no part of the tool.
 */
export function createItemTool(source: ItemToolSource, options: ItemToolOptions): Tool {
  return {
    id: source.id,
    description: source.description,
    inputSchema: source.inputSchema,
    traits: { ...CAUTIOUS_TRAITS, ...source.traits },
    execute: (input, context) => guarded(() => execute(source, { input, context, options })),
  };
}

interface Call {
  readonly input: JsonObject;
  readonly context: ToolContext;
  readonly options: ItemToolOptions;
}

async function execute(
  source: ItemToolSource,
  { input, context, options }: Call,
): Promise<ToolOutput> {
  const resolved = await resolveSecrets(
    source.inputSchema,
    input,
    options.resolveSecret ?? noSecret,
  );
  const folder = await makePrivateFolder('run', options.runFolder);
  try {
    return await runScript({
      id: source.id,
      command: await prepareCommand(source, folder.path, context.projectPath),
      input: resolved.input,
      timeoutSeconds: source.traits.timeout_seconds ?? CAUTIOUS_TRAITS.timeout_seconds,
      network: source.traits.network ?? CAUTIOUS_TRAITS.network,
      secrets: resolved.secrets,
      context,
      options: { ...options, passEnv: [...(options.passEnv ?? []), ...(source.env ?? [])] },
    });
  } finally {
    await folder.remove();
  }
}

function noSecret(): undefined {
  return undefined;
}

/** Writes the verified bytes into the private folder and says how to run them. */
async function prepareCommand(
  source: ItemToolSource,
  folder: string,
  projectPath: string,
): Promise<Command> {
  if (source.kind === 'manifest') {
    for (const { name, bytes } of source.files ?? []) {
      const file = join(folder, name);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, bytes, { mode: 0o700, flag: 'wx' });
    }
    return manifestCommand(source, folder, projectPath);
  }
  const file = join(folder, basename(source.path));
  await writeFile(file, coveredText(source.content), { mode: 0o600, flag: 'wx' });
  if (source.kind !== 'typescript') return scriptCommand(source.id, source.path, file);
  assertTypescriptRuns(source);
  return nodeCommand(file);
}

/** Node runs TypeScript by itself from 22.18 on. */
function assertTypescriptRuns({ id, path }: ItemToolSource): void {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > 22 || (major === 22 && minor >= 18)) return;
  throw new RyeError(
    'spawn_failed',
    `${id} is TypeScript, which Node ${process.versions.node} does not run`,
    {
      location: { path },
      hint: 'Use Node 22.18 or later, or compile the tool to JavaScript.',
    },
  );
}

function manifestCommand(source: ItemToolSource, folder: string, projectPath: string): Command {
  const fill = (part: string) =>
    part.replaceAll(/\{(tool_dir|project)\}/g, (_match, name: string) =>
      name === 'project' ? projectPath : folder,
    );
  const [program, ...args] = (source.command ?? []).map(fill);
  if (program === undefined || program === '') {
    throw new RyeError('tool_malformed', `the manifest of ${source.id} names no command`, {
      location: { path: source.path },
      hint: 'Add a command, such as command: [jq, "."].',
    });
  }
  return { program, args };
}
