import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe } from 'vitest';
import { text, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import { attacks, directive, harmless, type Lab, settledCode, shellTool } from './lab.ts';

const DONE: WireTurn = { steps: [text('done')] };

/** A thread that makes one call. */
async function settled(
  lab: Lab,
  permissions: string,
  name: string,
  input: object,
): Promise<string> {
  await lab.model([{ steps: [toolUse(name, input)] }, DONE]);
  lab.signed('directives/job.md', directive('job', { permissions }));
  return await settledCode(lab, await lab.run('job'));
}

describe('what another system gets wrong', () => {
  attacks([
    {
      // Requirement: permission-words-unchecked
      name: 'grants a kind of item that does not exist',
      code: 'permission_malformed',
      run: (lab) => {
        lab.signed(
          'directives/job.md',
          directive('job', { permissions: '<execute><tols>rye/bash</tols></execute>' }),
        );
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      // Requirement: internal-tools-allowed
      name: 'calls a tool by an id that sounds internal',
      code: 'capability_denied',
      run: async (lab) => {
        lab.signed('tools/rye/agent/threads/internal/evil.sh', shellTool('id'));
        return await settled(
          lab,
          '<execute><tool>rye/file-system/ls</tool></execute>',
          'rye_execute',
          { item_type: 'tool', item_id: 'rye/agent/threads/internal/evil' },
        );
      },
    },
    {
      // Requirement: developer-mode-allows-all, developer-mode-unsigned-only
      name: 'sets RYE_DEV_MODE and edits a signed directive',
      code: 'content_modified',
      run: (lab) => {
        lab.env['RYE_DEV_MODE'] = '1';
        lab.signed('directives/job.md', directive('job'));
        lab.write('directives/job.md', `${lab.read('directives/job.md')}more\n`);
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      name: 'sets RYE_DEV_MODE for a directive that a stranger signed',
      code: 'key_untrusted',
      run: (lab) => {
        lab.env['RYE_DEV_MODE'] = '1';
        lab.signed('directives/job.md', directive('job'), lab.stranger);
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      name: 'sets RYE_DEV_MODE for an unsigned directive of the user space',
      code: 'unsigned',
      run: (lab) => {
        lab.env['RYE_DEV_MODE'] = '1';
        lab.write('~/.ai/directives/job.md', directive('job'));
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      name: 'sets RYE_DEV_MODE to something else than 1',
      code: 'unsigned',
      run: (lab) => {
        lab.env['RYE_DEV_MODE'] = '0';
        lab.write('directives/job.md', directive('job'));
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      name: 'sets RYE_DEV_MODE: hooks of an unsigned project file are still ignored, its shell is not run',
      code: 'unsigned',
      run: async (lab) => {
        lab.env['RYE_DEV_MODE'] = '1';
        lab.write(
          'config/agent/hooks.yaml',
          'hooks:\n  - {id: evil, event: after_complete, inject: hi}\n',
        );
        lab.write('directives/job.md', directive('job'));
        const { hooks } = await lab.rye().threads.plan({ directiveId: 'job' });
        if (hooks.some(({ id }) => id === 'evil')) return 'the hook is there';
        return /\[(unsigned)\]/.exec(lab.notices.join('\n'))?.[1];
      },
    },
  ]);

  harmless([
    {
      name: 'does nothing wrong: RYE_DEV_MODE runs an unsigned directive of the project and reports it',
      expected: 'unverified',
      run: async (lab) => {
        lab.env['RYE_DEV_MODE'] = '1';
        lab.write('directives/job.md', directive('job'));
        return (await lab.rye().threads.plan({ directiveId: 'job' })).integrity;
      },
    },
    {
      // Requirement: broad-grant-empty
      name: 'grants every tool by a wildcard: all are offered',
      expected: [true, true, true],
      run: async (lab) => {
        lab.signed('tools/demo/a.sh', shellTool('echo {}'));
        return await Promise.all(
          ['*', '<execute>*</execute>', '<execute><tool>*</tool></execute>'].map(
            async (grant, index) => {
              const acknowledged =
                '<acknowledge risk="unrestricted">x</acknowledge><acknowledge risk="elevated">x</acknowledge>';
              const name = `job${index}`;
              lab.signed(
                `directives/${name}.md`,
                directive(name, { permissions: `${grant}${acknowledged}` }),
              );
              const { tools } = await lab.rye().threads.plan({ directiveId: name });
              const ids = new Set(tools.map(({ id }) => id));
              return ['demo/a', 'rye/bash', 'rye/file-system/read'].every((id) => ids.has(id));
            },
          ),
        );
      },
    },
    {
      // Requirement: environment-expansion
      name: 'writes the name of a key to a file: the text is what is written',
      expected: 'key=${ANTHROPIC_API_KEY} home=${HOME} {env:HOME}',
      run: async (lab) => {
        lab.env['ANTHROPIC_API_KEY'] = 'sk-ant-0123456789abcdef';
        const content = 'key=${ANTHROPIC_API_KEY} home=${HOME} {env:HOME}';
        await settled(
          lab,
          '<execute><tool>rye/file-system/write</tool></execute>',
          'rye_file_system_write',
          { path: 'out.txt', content },
        );
        return readFileSync(path.join(lab.project, 'out.txt'), 'utf8');
      },
    },
    {
      // Requirement: same-second-collision
      name: 'starts five threads of one directive at once: each has a unique id',
      expected: [5, true],
      run: async (lab) => {
        const rye = lab.rye();
        const results = await Promise.all(
          Array.from({ length: 5 }, () => rye.threads.execute({ directiveId: 'hello' })),
        );
        return [
          new Set(results.map(({ thread_id }) => thread_id)).size,
          results.every(({ success }) => success),
        ];
      },
    },
  ]);
});
