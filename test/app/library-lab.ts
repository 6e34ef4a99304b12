import { mkdirSync, mkdtempSync, realpathSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import type { OpenRyeOptions, Rye } from '../../src/kernel/app/api/rye.ts';
import { openRye } from '../../src/open-rye.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { startWireServer, type WireScript, type WireServer } from '../helpers/wire-server.ts';

/** A project whose model is a script, as a program that embeds rye sees it. */
export interface LibraryLab {
  readonly project: string;
  readonly server: WireServer;
  open(options?: Partial<OpenRyeOptions>): Rye;
  /** Writes and signs `team/<name>` with these grants; `parts` go into its metadata and after it. */
  directive(name: string, tools?: readonly string[], parts?: DirectiveParts): Promise<void>;
}

export interface DirectiveParts {
  readonly metadata?: string;
  readonly outputs?: string;
  readonly process?: string;
  /** The text after the XML; default: a short one. */
  readonly body?: string;
}

export async function libraryLab(script: WireScript = []): Promise<LibraryLab> {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-library-')));
  const project = path.join(root, 'project');
  const home = path.join(root, 'home');
  mkdirSync(project);
  mkdirSync(home);
  const server = await startWireServer(script);
  const opened: Rye[] = [];
  const open = (options: Partial<OpenRyeOptions> = {}): Rye => {
    const rye = openRye({
      projectPath: project,
      userSpacePath: home,
      env: { HOME: home, ANTHROPIC_API_KEY: 'sk-ant-test', ANTHROPIC_BASE_URL: server.url },
      ...options,
    });
    opened.push(rye);
    return rye;
  };
  onTestFinished(async () => {
    for (const rye of opened) rye.close();
    await server.close();
    removeFolder(root);
  });
  const rye = open();
  await rye.init();
  return {
    project,
    server,
    open,
    directive: async (name, tools = [], parts = {}) => {
      const grants = tools.map((tool) => `<tool>${tool}</tool>`).join('');
      const permissions =
        grants === '' ? '' : `<permissions><execute>${grants}</execute></permissions>`;
      const file = path.join(project, '.ai/directives/team', `${name}.md`);
      mkdirSync(path.dirname(file), { recursive: true });
      writeFileSync(
        file,
        `# ${name}\n\n\`\`\`xml\n<directive name="${name}" version="1.0.0"><metadata><description>${name}</description><category>team</category><author>test</author>${permissions}${parts.metadata ?? ''}</metadata>${parts.outputs ?? ''}${parts.process ?? ''}</directive>\n\`\`\`\n\n${parts.body ?? `Do ${name}.`}\n`,
      );
      for (const { status, problems } of await rye.items.sign('directive', `team/${name}`)) {
        if (status === 'failed') throw new Error(JSON.stringify(problems));
      }
    },
  };
}
