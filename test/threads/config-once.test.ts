import { expect, it, onTestFinished } from 'vitest';
import { executeDirective } from '../../src/kernel/app/thread-runs.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import type { Config } from '../../src/kernel/items/config-fs.ts';
import { directive, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

/** Counts how often each configuration file is asked for: validating the configuration asks for each file once. */
class CountingWorkspace extends Workspace {
  readonly loads = new Map<string, number>();
  #counted: Promise<Config> | undefined;

  override async config(): Promise<Config> {
    this.#counted ??= super.config().then((config) => ({
      ...config,
      load: async (name: string) => {
        this.loads.set(name, (this.loads.get(name) ?? 0) + 1);
        return await config.load(name);
      },
    }));
    return await this.#counted;
  }
}

it('a run of a directive validates the configuration once', async () => {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  const answers = [calls(toolUse('rye_file_system_ls', { path: '.' }))];
  await lab.model(() => answers.shift() ?? reply('Done.'));
  const permissions = '<execute><tool>rye/file-system/ls</tool></execute>';
  lab.signed('directives/work.md', directive('work', { permissions }));
  const { project: projectPath, home: userSpacePath, env } = lab;
  const base = new CountingWorkspace({ projectPath, userSpacePath, env });
  onTestFinished(() => base.close());
  const { status } = await executeDirective(base, { directiveId: 'work' });
  expect(status).toBe('completed');
  expect(base.loads.get('agent/coordination')).toBe(1);
  expect(answers).toEqual([]);
});
