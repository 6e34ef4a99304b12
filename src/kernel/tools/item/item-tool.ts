import { mkdir, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import type { ToolKind } from '../../items/tool-metadata.ts';
import type { ToolFile } from '../../items/tool-metadata-fs.ts';
import type { ToolRuntime } from '../../items/tool-runtime.ts';
import { makePrivateFolder } from '../kill-guard.ts';
import {
  type Command,
  coveredText,
  nodeCommand,
  runScript,
  type ScriptOptions,
  scriptCommand,
} from '../script.ts';
import { type ResolveSecret, resolveSecrets } from '../secrets.ts';
import {
  CAUTIOUS_TRAITS,
  guarded,
  type Tool,
  type ToolContext,
  type ToolOutput,
  type ToolTraits,
} from '../tool.ts';
import { runtimeCommand } from './runtimes.ts';

/** A tool item whose signature has been checked. */
export interface ItemToolSource {
  readonly id: string;
  /** Absolute path that the bytes were read from. */
  readonly path: string;
  readonly kind: ToolKind;
  /** Program and arguments of a manifest; `{tool_dir}` and `{project}` are replaced in each. */
  readonly command?: readonly string[];
  /** The way parameters reach it; absent: as JSON on stdin. */
  readonly runtime?: ToolRuntime;
  /** Files beside the tool while it runs, in `{tool_dir}`: those that it pins, as they were checked. */
  readonly files?: readonly ToolFile[];
  readonly description: string;
  readonly inputSchema: JsonObject;
  /** Environment variables that the tool requests; those with a secret's name are not passed. */
  readonly env?: readonly string[];
  /** The declared traits; the others are cautious. */
  readonly traits: Partial<ToolTraits>;
  /** The verified bytes. These run, even if the file has changed since. */
  readonly content: string | Uint8Array;
  /** SHA-256 hex of the tool's file, which pins the files beside it. */
  readonly sha256?: string;
}

export interface ItemToolOptions extends ScriptOptions {
  /** Absent: there are no secrets. */
  readonly resolveSecret?: ResolveSecret;
  /** Hosts that HTTP tools may reach; absent: any. */
  readonly allowDomains?: readonly string[];
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
    ...(source.sha256 === undefined ? {} : { sha256: source.sha256 }),
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
  const timeoutSeconds = source.traits.timeout_seconds ?? CAUTIOUS_TRAITS.timeout_seconds;
  if (source.runtime?.how === 'http') {
    const { sendRequest } = await import('./http-request.ts');
    const { env, allowDomains } = options;
    const { request } = source.runtime;
    return await sendRequest({
      ...resolved,
      id: source.id,
      request,
      timeoutSeconds,
      env,
      allowDomains,
      context,
    });
  }
  const folder = await makePrivateFolder('run', options.runFolder);
  try {
    const { plain, file } = await prepareCommand(source, folder.path, context.projectPath);
    return await runScript({
      id: source.id,
      command: runtimeCommand(source.runtime, plain, {
        ...resolved,
        id: source.id,
        file,
        folder: folder.path,
        projectPath: context.projectPath,
        env: options.env,
      }),
      folder: folder.path,
      input: resolved.input,
      timeoutSeconds,
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

/** Writes the verified bytes, and the files that the tool pins, into the private folder; returns how to run them. */
async function prepareCommand(
  source: ItemToolSource,
  folder: string,
  projectPath: string,
): Promise<{ readonly plain: Command; readonly file: string }> {
  for (const { name, bytes } of source.files ?? []) {
    const file = join(folder, name);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, bytes, { mode: 0o700, flag: 'wx' });
  }
  const file = join(folder, basename(source.path));
  if (source.kind === 'manifest') {
    const plain =
      source.runtime?.how === 'shell'
        ? { program: '', args: [] }
        : manifestCommand(source, folder, projectPath);
    return { plain, file };
  }
  await writeFile(file, coveredText(source.content), { mode: 0o600, flag: 'wx' });
  const plain =
    source.kind === 'typescript' ? nodeCommand(file) : scriptCommand(source.id, source.path, file);
  return { plain, file };
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
