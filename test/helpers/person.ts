import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { main } from '../../src/faces/cli/main.ts';
import { openRye } from '../../src/open-rye.ts';
import { createFakeIo, type FakeIoOptions } from './fake-io.ts';
import { removeFolder } from './remove-folder.ts';
import { reply, startWireServer, type WireScript } from './wire-server.ts';

export interface Answer {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A person without anything of rye: two empty folders, a model, and the command line in this process. */
export interface Person {
  readonly project: string;
  readonly home: string;
  rye(args: readonly string[], options?: FakeIoOptions): Promise<Answer>;
  /** The lines that git prints in a folder, the project by default. */
  git(args: readonly string[], cwd?: string): readonly string[];
}

export async function newPerson(script: WireScript = () => reply('42')): Promise<Person> {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-person-')));
  onTestFinished(() => removeFolder(root));
  const server = await startWireServer(script);
  onTestFinished(server.close);
  const project = path.join(root, 'project');
  const home = path.join(root, 'home');
  for (const folder of [project, home]) mkdirSync(folder);
  const model = { ANTHROPIC_API_KEY: 'sk-ant-person', ANTHROPIC_BASE_URL: server.url };
  return {
    project,
    home,
    rye: async (args, { env, ...options } = {}) => {
      const io = createFakeIo({ cwd: project, ...options });
      const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
      const code = await main(args, {
        ...io,
        env: { PATH: process.env['PATH'] ?? '', HOME: home, ...model, ...env },
        openRye: open,
        openThreadList: open,
      });
      return { code, out: io.out(), err: io.err() };
    },
    git: (args, cwd = project) =>
      execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b.c', ...args], {
        cwd,
        encoding: 'utf8',
        env: { PATH: process.env['PATH'], HOME: root },
      })
        .split('\n')
        .filter((line) => line !== ''),
  };
}
