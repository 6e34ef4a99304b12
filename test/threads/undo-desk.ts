import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { FileUndo, UndoRequest } from '../../src/kernel/app/api/trees.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { text, toolUse, type WireStep, type WireTurn } from '../helpers/wire-server.ts';

/** A project with a directive that changes files as its model asks. */
export interface UndoDesk {
  readonly lab: Lab;
  /** The turns that the model answers next, each a list of steps; afterwards it is done. */
  readonly turns: (readonly WireStep[])[];
  put(file: string, content: string | Uint8Array, mode?: number): void;
  /** Returns the content of a file; null if there is none. */
  get(file: string): string | null;
  modeOf(file: string): number;
  has(file: string): boolean;
  drop(file: string): void;
  /** Runs the directive with these turns; returns the thread. */
  run(...turns: readonly (readonly WireStep[])[]): Promise<string>;
  resume(id: string, message: string, ...turns: readonly (readonly WireStep[])[]): Promise<void>;
  undo(id: string, request?: UndoRequest): Promise<FileUndo>;
  /** Ids of the entries with a message of this role, oldest first. */
  entries(id: string, role: 'assistant' | 'tool_result' | 'user'): Promise<readonly string[]>;
}

const GRANTS = `<execute>
  <tool>rye/file-system/*</tool><tool>rye/bash</tool><directive>*</directive>
</execute><acknowledge risk="elevated">a test</acknowledge>`;

export const write = (path: string, content: string): WireStep =>
  toolUse('rye_file_system_write', { path, content });
export const edit = (path: string, old_string: string, new_string: string): WireStep =>
  toolUse('rye_file_system_edit', { path, old_string, new_string });
export const bash = (command: string): WireStep => toolUse('rye_bash', { command });
export const execute = (item_id: string): WireStep =>
  toolUse('rye_execute', { item_type: 'directive', item_id });

/** Opens a desk that is removed when the running test ends. */
export async function undoDesk(): Promise<UndoDesk> {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  const turns: (readonly WireStep[])[] = [];
  await lab.model((): WireTurn => ({ steps: turns.shift() ?? [text('Done.')] }));
  for (const [name, spend] of [
    ['work', '2.00'],
    ['child', '0.20'],
  ] as const) {
    const limits = `turns="40" spend="${spend}" spawns="20" depth="4"`;
    lab.signed(`directives/${name}.md`, directive(name, { permissions: GRANTS, limits }));
  }
  const at = (file: string): string => join(lab.project, file);
  return {
    lab,
    turns,
    put: (file, content, mode) => {
      mkdirSync(dirname(at(file)), { recursive: true });
      writeFileSync(at(file), content);
      if (mode !== undefined) chmodSync(at(file), mode);
    },
    get: (file) => (existsSync(at(file)) ? readFileSync(at(file), 'utf8') : null),
    modeOf: (file) => statSync(at(file)).mode & 0o7777,
    has: (file) => existsSync(at(file)),
    drop: (file) => removeFolder(at(file)),
    run: async (...more) => {
      turns.push(...more);
      const { thread_id: id, status, error } = await lab.run('work');
      if (status !== 'completed') throw new Error(JSON.stringify(error));
      return id;
    },
    resume: async (threadId, message, ...more) => {
      turns.push(...more);
      const { status, error } = await lab.rye().recovery.resume({ threadId, message });
      if (status !== 'completed') throw new Error(JSON.stringify(error));
    },
    undo: async (id, request) => await lab.rye().trees.undoFiles(id, request),
    entries: async (id, role) => {
      const { rows } = await lab.rye().trees.view(id, { filter: 'all' });
      return rows.filter(({ kind }) => kind === role).map(({ entry }) => entry.id);
    },
  };
}

export function git({ project }: Lab, ...args: readonly string[]): string {
  const identity = ['-c', 'user.name=t', '-c', 'user.email=t@example.com'];
  return execFileSync('git', [...identity, ...args], { cwd: project, encoding: 'utf8' });
}

/** A desk whose project is a repository with one commit of `a.txt`. */
export async function repository(): Promise<UndoDesk> {
  const desk = await undoDesk();
  desk.put('a.txt', 'one\ntwo\nthree\nfour\nfive\n');
  desk.put('.gitignore', '.ai/\nignored.txt\n');
  git(desk.lab, 'init', '--quiet');
  git(desk.lab, 'add', '--all');
  git(desk.lab, 'commit', '--quiet', '-m', 'first');
  return desk;
}

/** Names of the worktrees of a project. */
export function worktrees({ lab }: UndoDesk): readonly string[] {
  const folder = lab.path('state/worktrees');
  return existsSync(folder) ? readdirSync(folder).filter((name) => !name.includes('.')) : [];
}
