import { copyFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { text, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import { attacks, codeOf, directive, harmless, type Lab, settledCode } from './lab.ts';

const FILES = '<execute><tool>rye/file-system/*</tool></execute>';
const DONE: WireTurn = { steps: [text('done')] };
const HOOKS = `hooks:
  - id: no_env_files
    event: tool_gate
    condition: { path: input.path, op: regex, value: "env$" }
    action: { control: fail, error: "secret files are private" }
`;
const LOCK = 'lock.json';
const hooksFile = 'config/agent/hooks.yaml';

/** A project with a signed guard, pinned by the command that signed it. */
async function guardedLab(lab: Lab): Promise<void> {
  lab.write(hooksFile, HOOKS);
  await lab.sign('config', 'agent/hooks');
  lab.signed('directives/job.md', directive('job', { permissions: FILES }));
  writeFileSync(join(lab.project, 'secret.env'), 'TOKEN=1');
}

/** Returns what a model with file tools receives for one call. */
async function asked(lab: Lab, name: string, input: unknown): Promise<string> {
  await lab.model([{ steps: [toolUse(name, input)] }, DONE]);
  return await settledCode(lab, await lab.run('job'));
}

/** Runs once with the guard in force, then after `change`. */
const afterwards = (change: (lab: Lab) => unknown) => async (lab: Lab) => {
  await guardedLab(lab);
  await lab.run('hello');
  await change(lab);
  return codeOf(await lab.run('hello'));
};

const unsign = (lab: Lab): void => {
  lab.write(hooksFile, lab.read(hooksFile).replace(/^.*\n/, ''));
};

const forgetUser = (lab: Lab): void => removeFolder(join(lab.home, '.ai/state'));

describe('a model that holds file tools', () => {
  attacks(
    [
      { name: 'hooks', path: `.ai/${hooksFile}` },
      { name: 'the lock', path: '.ai/lock.json' },
      { name: 'a rule', path: '.ai/rules/mine.md' },
      { name: 'a skill', path: '.ai/skills/x/SKILL.md' },
      { name: 'an MCP server', path: '.ai/config/mcp.yaml' },
      { name: 'a tool over a system tool', path: '.ai/tools/rye/core/greet.sh' },
      { name: 'a directive', path: '.ai/directives/hello.md' },
      { name: 'knowledge', path: '.ai/knowledge/agent/threads/hello/a.md' },
      { name: 'an environment that a shell loads', path: '.envrc' },
      { name: 'settings of Mercurial', path: '.hg/hgrc' },
      { name: 'tasks of an editor', path: '.vscode/tasks.json' },
      { name: 'filters of git', path: '.gitattributes' },
    ].map(({ name, path }) => ({
      name: `writes ${name}`,
      code: 'path_denied' as const,
      run: async (lab: Lab) => {
        await guardedLab(lab);
        return await asked(lab, 'rye_file_system_write', { path, content: 'hooks: []\n' });
      },
    })),
  );

  attacks([
    {
      name: 'edits the signature line of the hooks',
      code: 'path_denied',
      run: async (lab) => {
        await guardedLab(lab);
        const edit = { path: `.ai/${hooksFile}`, old_string: 'hooks:', new_string: 'hooks: []' };
        return await asked(lab, 'rye_file_system_edit', edit);
      },
    },
    {
      name: 'holds every tool by a wildcard: the guards are not among them',
      code: 'path_denied',
      run: async (lab) => {
        await guardedLab(lab);
        lab.signed(
          'directives/job.md',
          directive('job', {
            permissions: '*<acknowledge risk="unrestricted">a test</acknowledge>',
          }),
        );
        const input = { path: `.ai/${hooksFile}`, content: 'hooks: []\n' };
        return await asked(lab, 'rye_file_system_write', input);
      },
    },
    {
      name: 'asks for the removal of guards without an acknowledgement',
      code: 'acknowledge_required',
      run: async (lab) => {
        const permissions = '<execute><tool>rye/file-system/guarded/*</tool></execute>';
        lab.signed('directives/job.md', directive('job', { permissions }));
        return await lab.run('job');
      },
    },
    {
      name: 'is granted the hooks and changes them: the next run is refused',
      code: 'guard_changed',
      run: async (lab) => {
        await guardedLab(lab);
        const grant =
          '<execute><tool>rye/file-system/*</tool><tool>rye/file-system/guarded/config</tool></execute>';
        const permissions = `${grant}<acknowledge risk="elevated">a test</acknowledge>`;
        lab.signed('directives/job.md', directive('job', { permissions }));
        const input = { path: `.ai/${hooksFile}`, content: 'hooks: []\n' };
        const code = await asked(lab, 'rye_file_system_write', input);
        if (code !== 'ok') return code;
        return await lab.run('hello');
      },
    },
    {
      // Requirement: model-signature-waits
      name: 'signs a rule itself: the next run waits for a person',
      code: 'guard_changed',
      run: async (lab) => {
        await guardedLab(lab);
        lab.write('rules/mine.md', '---\ndescription: Mine.\n---\nBe quick.\n');
        const permissions =
          '<sign><rule>*</rule></sign><acknowledge risk="elevated">a test</acknowledge>';
        lab.signed('directives/job.md', directive('job', { permissions }));
        const code = await asked(lab, 'rye_sign', { item_type: 'rule', item_id: 'mine' });
        if (code !== 'ok') return code;
        return await lab.run('hello');
      },
    },
  ]);

  harmless([
    {
      name: 'reads a private file, removes the guard, and tries again: the guard holds',
      expected: ['hook_failed', 'path_denied', 'hook_failed'],
      run: async (lab) => {
        await guardedLab(lab);
        const read = async () => await asked(lab, 'rye_file_system_read', { path: 'secret.env' });
        return [
          await read(),
          await asked(lab, 'rye_file_system_write', {
            path: `.ai/${hooksFile}`,
            content: 'hooks: []\n',
          }),
          await read(),
        ];
      },
    },
  ]);
});

describe('a guard that was changed beside rye', () => {
  attacks(
    (
      [
        // Requirement: guard-removal-noticed
        ['takes the signature off the hooks', unsign],
        ['empties the hooks', (lab) => lab.write(hooksFile, 'hooks: []\n')],
        [
          'edits the hooks under their signature',
          (lab) => lab.write(hooksFile, `${lab.read(hooksFile)}\n# x\n`),
        ],
        ['removes the hooks', (lab) => rmSync(lab.path(hooksFile))],
        ['replaces the hooks by other signed hooks', (lab) => lab.signed(hooksFile, 'hooks: []\n')],
        [
          'replaces the hooks by a signed note',
          (lab) => lab.signed(hooksFile, 'name: note\ntitle: A note\nhooks: []\n'),
        ],
        ['has a stranger sign the hooks', (lab) => lab.signed(hooksFile, HOOKS, lab.stranger)],
        [
          'adds a signed power file that the user did not accept',
          (lab) => lab.signed('rules/r.md', '---\ndescription: R.\n---\nx\n'),
        ],
        ['removes the lock', (lab) => rmSync(lab.path(LOCK))],
        // Requirement: lock-removal-noticed
        ['removes lock and hooks', (lab) => [rmSync(lab.path(LOCK)), rmSync(lab.path(hooksFile))]],
        [
          'edits the lock',
          (lab) => lab.write(LOCK, lab.read(LOCK).replace('agent/hooks', 'agent/other')),
        ],
        [
          'takes the signature off the lock',
          (lab) => lab.write(LOCK, lab.read(LOCK).replace(/,\s*"_signature": "[^"]*"/, '')),
        ],
        [
          'takes the hooks off and forgets what the user space knew',
          (lab) => [unsign(lab), forgetUser(lab)],
        ],
        [
          'edits the lock and forgets what the user space knew',
          (lab) => [
            lab.write(LOCK, lab.read(LOCK).replace('agent/hooks', 'agent/other')),
            forgetUser(lab),
          ],
        ],
      ] as readonly (readonly [string, (lab: Lab) => unknown])[]
    ).map(([name, change]) => ({ name, code: 'guard_changed' as const, run: afterwards(change) })),
  );

  attacks([
    {
      // Requirement: guard-rollback-noticed
      name: 'rolls hooks and lock back to an older version that was signed',
      code: 'guard_changed',
      run: async (lab) => {
        lab.write(hooksFile, 'hooks: []\n');
        await lab.sign('config', 'agent/hooks');
        for (const name of [hooksFile, LOCK])
          copyFileSync(lab.path(name), join(lab.home, name.replaceAll('/', '_')));
        lab.write(hooksFile, HOOKS);
        await lab.sign('config', 'agent/hooks');
        for (const name of [hooksFile, LOCK])
          copyFileSync(join(lab.home, name.replaceAll('/', '_')), lab.path(name));
        return await lab.run('hello');
      },
    },
    {
      name: 'takes off hooks that no lock pins, but that have run before',
      code: 'guard_changed',
      run: async (lab) => {
        lab.signed(hooksFile, HOOKS);
        await lab.run('hello');
        rmSync(lab.path(hooksFile));
        return await lab.run('hello');
      },
    },
    {
      name: 'edits hooks under their signature that were never pinned',
      code: 'guard_changed',
      run: async (lab) => {
        lab.signed(hooksFile, HOOKS);
        lab.write(hooksFile, `${lab.read(hooksFile)}# x\n`);
        return await lab.run('hello');
      },
    },
    {
      name: 'resumes a thread without the guard that it ran under',
      code: 'guard_changed',
      run: async (lab) => {
        await guardedLab(lab);
        const { thread_id: threadId } = await lab.run('hello');
        unsign(lab);
        return await lab.rye().recovery.resume({ threadId });
      },
    },
    {
      name: 'launches a thread in a separate process without the guard',
      code: 'guard_changed',
      run: async (lab) => {
        await guardedLab(lab);
        unsign(lab);
        return await lab.rye().children.launch({ directiveId: 'hello' });
      },
    },
    {
      name: 'runs a single tool without the guard',
      code: 'guard_changed',
      run: async (lab) => {
        await guardedLab(lab);
        unsign(lab);
        return await lab.rye().threads.executeTool({ toolId: 'rye/core/greet', params: {} });
      },
    },
    {
      name: 'accepts the change without the key of the user',
      code: 'key_missing',
      run: async (lab) => {
        await guardedLab(lab);
        unsign(lab);
        removeFolder(join(lab.home, '.ai/config/keys/signing'));
        return await lab.rye().lock.accept();
      },
    },
  ]);

  harmless([
    {
      name: 'signs other hooks: the lines that change are shown before they are accepted',
      expected: ['config', 'agent/hooks', true, true, true],
      run: async (lab) => {
        await guardedLab(lab);
        lab.signed(hooksFile, HOOKS.replace('env$', 'never'));
        const [{ type, id, lines } = { type: '', id: '', lines: [] }] = (
          await lab.rye().lock.status()
        ).diffs;
        const has = (start: string, part: string): boolean =>
          lines.some((line) => line.startsWith(start) && line.includes(part));
        return [type, id, has('-', 'env$'), has('+', 'never'), has(' ', 'tool_gate')];
      },
    },
    {
      name: 'lets the library run with the outcome that names the change',
      expected: 'guard_changed',
      run: async (lab) => {
        await guardedLab(lab);
        unsign(lab);
        const outcome = await lab.rye().run({ directiveId: 'hello' });
        return outcome.kind === 'failed' ? outcome.error.code : outcome.kind;
      },
    },
    {
      name: 'brings a lock of a stranger: it pins nothing and is named',
      expected: ['completed', true],
      run: async (lab) => {
        await guardedLab(lab);
        const { lockText } = await import('../../src/kernel/trust/lock.ts');
        forgetUser(lab);
        lab.write(LOCK, lockText({ serial: 9, files: [] }, lab.stranger, 0));
        const { status, warnings } = await lab.run('hello');
        return [status, warnings?.some((one) => one.includes(lab.stranger.keyId))];
      },
    },
    {
      name: 'forgets what the user space knew: the next run learns it again from the lock',
      expected: ['completed', 'guard_changed'],
      run: async (lab) => {
        await guardedLab(lab);
        await lab.run('hello');
        forgetUser(lab);
        const { status } = await lab.run('hello');
        rmSync(lab.path(LOCK));
        rmSync(lab.path(hooksFile));
        const code = await lab.run('hello').then(codeOf, (error: { code: string }) => error.code);
        return [status, code];
      },
    },
    {
      name: 'converts ends of line, as version control does: nothing has changed',
      expected: 'completed',
      run: async (lab) => {
        await guardedLab(lab);
        for (const name of [hooksFile, LOCK])
          lab.write(name, readFileSync(lab.path(name), 'utf8').replaceAll('\n', '\r\n'));
        return (await lab.run('hello')).status;
      },
    },
  ]);
});
