import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { textOf } from '../../src/kernel/core/message.ts';
import { createBuiltinTools } from '../../src/kernel/tools/builtin/builtin-tools.ts';
import type { BuiltinOptions } from '../../src/kernel/tools/builtin/options.ts';
import type { Tool, ToolContext, ToolOutput } from '../../src/kernel/tools/tool.ts';

/** A project in a temporary folder, removed when the scope ends. */
export class Project implements AsyncDisposable {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static async create(files: Readonly<Record<string, string | Uint8Array>> = {}): Promise<Project> {
    const project = new Project(await realpath(await mkdtemp(join(tmpdir(), 'rye-tools-'))));
    for (const [name, content] of Object.entries(files)) await project.write(name, content);
    return project;
  }

  file(name: string): string {
    return join(this.path, name);
  }

  async write(name: string, content: string | Uint8Array): Promise<void> {
    await mkdir(dirname(this.file(name)), { recursive: true });
    await writeFile(this.file(name), content);
  }

  context(overrides: Partial<ToolContext> = {}): ToolContext {
    return {
      callId: 'call-1',
      threadId: 'demo/thread-1',
      projectPath: this.path,
      signal: new AbortController().signal,
      progress: () => undefined,
      ...overrides,
    };
  }

  /** Runs a built-in tool by the last part of its id. */
  async run(
    name: string,
    input: JsonObject,
    options: Partial<BuiltinOptions> = {},
  ): Promise<Shown> {
    return shown(await builtin(name, options).execute(input, this.context()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}

export function builtin(name: string, options: Partial<BuiltinOptions> = {}): Tool {
  const tools = createBuiltinTools({ env: process.env, ...options });
  const tool = tools.find(({ id }) => id === name || id.endsWith(`/${name}`));
  if (tool === undefined) throw new Error(`no tool ${name}`);
  return tool;
}

export interface Shown {
  readonly text: string;
  readonly isError: boolean;
  readonly data: JsonObject;
}

export function shown(output: ToolOutput): Shown {
  return { text: textOf(output.content), isError: output.is_error, data: output.data ?? {} };
}
