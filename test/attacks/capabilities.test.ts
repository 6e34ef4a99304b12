import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe } from 'vitest';
import { text, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import {
  type Attack,
  attacks,
  codeOf,
  directive,
  harmless,
  type Lab,
  settledCode,
  shellTool,
} from './lab.ts';

const FILES = '<execute><tool>rye/file-system/*</tool></execute>';
const LS = '<execute><tool>rye/file-system/ls</tool></execute>';
const DONE: WireTurn = { steps: [text('done')] };

/** The answer to one call that a model makes in a thread with these permissions. */
const call =
  (permissions: string, name: string, input: unknown, setUp?: (lab: Lab) => unknown) =>
  async (lab: Lab): Promise<string> => {
    await setUp?.(lab);
    await lab.model([{ steps: [toolUse(name, input)] }, DONE]);
    lab.signed('directives/job.md', directive('job', { permissions }));
    return await settledCode(lab, await lab.run('job'));
  };

const plan = (permissions: string) => (lab: Lab) => {
  lab.signed('directives/job.md', directive('job', { permissions }));
  return lab.rye().threads.plan({ directiveId: 'job' });
};

const child = (permissions: string, limits?: string): string =>
  directive('child', { permissions, ...(limits === undefined ? {} : { limits }) });

describe('calls that a thread may not make', () => {
  attacks([
    {
      name: 'calls a tool that was not granted',
      code: 'capability_denied',
      run: call(FILES, 'rye_bash', { command: 'id' }),
    },
    {
      // Requirement: check-differs-from-dispatch, check-sees-what-runs
      name: 'calls a tool by its id with an argument that names another item',
      code: 'capability_denied',
      run: call(FILES, 'rye/bash', { command: 'id', item_id: 'rye/file-system/ls' }),
    },
    {
      name: 'smuggles a tool through rye_execute',
      code: 'capability_denied',
      run: call(LS, 'rye_execute', {
        item_type: 'tool',
        item_id: 'rye/bash',
        parameters: { command: 'id' },
      }),
    },
    {
      name: 'smuggles rye_execute through rye_execute',
      code: 'capability_denied',
      run: call(LS, 'rye_execute', {
        item_type: 'tool',
        item_id: 'rye/execute',
        parameters: { item_type: 'tool', item_id: 'rye/bash', parameters: { command: 'id' } },
      }),
    },
    {
      name: 'sends the parameters of a smuggled tool as text',
      code: 'capability_denied',
      run: call(LS, 'rye_execute', {
        item_type: 'tool',
        item_id: 'rye_bash',
        parameters: '{"command": "id"}',
      }),
    },
    {
      name: 'runs a directive that was not granted',
      code: 'capability_denied',
      run: call(LS, 'rye_execute', { item_type: 'directive', item_id: 'hello' }),
    },
    {
      name: 'fetches knowledge that was not granted',
      code: 'capability_denied',
      run: call('<fetch><knowledge>public/*</knowledge></fetch>', 'rye_fetch', {
        item_type: 'knowledge',
        item_id: 'private/plan',
      }),
    },
    {
      name: 'signs what it may not sign',
      code: 'capability_denied',
      run: call(`${FILES}<fetch>*</fetch>`, 'rye_sign', { item_type: 'directive', item_id: 'job' }),
    },
    {
      // Requirement: signing-takes-one-id
      name: 'signs by a pattern that begins like the grant and names another item',
      code: 'invalid_item_id',
      run: call(
        '<sign><directive>safe/*</directive></sign><acknowledge risk="elevated">x</acknowledge>',
        'rye_sign',
        { item_type: 'directive', item_id: 'safe/*|admin/deploy' },
        (lab) => {
          lab.signed('directives/safe/a.md', directive('a', { category: 'safe' }));
          lab.write('directives/admin/deploy.md', directive('deploy', { category: 'admin' }));
        },
      ),
    },
    {
      name: 'signs everything by a star',
      code: 'invalid_item_id',
      run: call(
        '<sign>*</sign><acknowledge risk="elevated">x</acknowledge>',
        'rye_sign',
        { item_type: 'directive', item_id: '*' },
        (lab) => lab.write('directives/other.md', directive('other')),
      ),
    },
    {
      name: 'signs an item of the user space',
      code: 'read_only_space',
      run: call(
        '<sign>*</sign><acknowledge risk="elevated">x</acknowledge>',
        'rye_sign',
        { item_type: 'directive', item_id: 'mine' },
        (lab) => lab.write('~/.ai/directives/mine.md', directive('mine')),
      ),
    },
    {
      name: 'executes by a pattern',
      code: 'invalid_item_id',
      run: call('<execute><directive>safe/*</directive></execute>', 'rye_execute', {
        item_type: 'directive',
        item_id: 'safe/*|hello',
      }),
    },
    {
      name: 'fetches by a path out of its space',
      code: 'invalid_item_id',
      run: call('<fetch>*</fetch>', 'rye_fetch', {
        item_type: 'knowledge',
        item_id: '../../etc/passwd',
      }),
    },
    {
      name: 'fetches with a grant to execute',
      code: 'capability_denied',
      run: call('<execute><directive>hello</directive></execute>', 'rye_fetch', {
        item_type: 'directive',
        item_id: 'hello',
      }),
    },
    {
      name: 'calls a sibling whose id only begins like the grant',
      code: 'capability_denied',
      run: call(
        '<execute><tool>safe/list</tool></execute>',
        'rye_execute',
        { item_type: 'tool', item_id: 'safe/list-all' },
        (lab) => {
          lab.signed('tools/safe/list.sh', shellTool('echo {}'));
          lab.signed('tools/safe/list-all.sh', shellTool('echo {}'));
        },
      ),
    },
    {
      name: 'calls an id whose dot reads as the slash of a grant',
      code: 'invalid_item_id',
      run: call(
        '<execute><tool>safe/list</tool></execute>',
        'rye_execute',
        { item_type: 'tool', item_id: 'safe.list' },
        (lab) => {
          lab.signed('tools/safe/list.sh', shellTool('echo {}'));
          lab.signed('tools/safe.list.sh', shellTool('echo {}'));
        },
      ),
    },
    {
      name: 'writes a tool while it runs, and calls it under its wildcard',
      code: 'unsigned',
      run: async (lab) => {
        lab.signed('tools/demo/a.sh', shellTool('echo {}'));
        const content = shellTool('id');
        await lab.model([
          { steps: [toolUse('rye_file_system_write', { path: '.ai/tools/demo/b.sh', content })] },
          { steps: [toolUse('rye_execute', { item_type: 'tool', item_id: 'demo/b' })] },
          DONE,
        ]);
        lab.signed(
          'directives/job.md',
          directive('job', {
            permissions:
              '<execute><tool>rye/file-system/write</tool><tool>rye/file-system/guarded/tools</tool><tool>demo/*</tool></execute><acknowledge risk="elevated">a test</acknowledge>',
          }),
        );
        return await settledCode(lab, await lab.run('job'), 1);
      },
    },
    {
      // Requirement: late-tool-judged
      name: 'calls a riskier tool that was signed while it ran',
      code: 'risk_blocked',
      run: async (lab) => {
        lab.signed('tools/demo/a.sh', shellTool('echo {}'));
        await lab.model([
          { steps: [toolUse('rye_file_system_ls', { path: '.' })] },
          { steps: [toolUse('rye_execute', { item_type: 'tool', item_id: 'demo/b' })] },
          DONE,
        ]);
        lab.signed(
          'directives/job.md',
          directive('job', {
            permissions:
              '<execute><tool>rye/file-system/ls</tool><tool>demo/*</tool></execute><acknowledge risk="elevated">a test</acknowledge>',
          }),
        );
        const result = await lab.run('job', {
          onEvent: ({ event_type }) => {
            if (event_type === 'turn_started')
              lab.signed(
                'tools/demo/b.sh',
                shellTool('id', 'description: A tool.\ntraits: {risk: unrestricted}'),
              );
          },
        });
        return await settledCode(lab, result, 1);
      },
    },
  ]);

  harmless([
    {
      // Requirement: no-permissions-internal-error
      name: 'asks for nothing and is offered nothing',
      expected: [],
      run: async (lab) => {
        lab.signed('directives/job.md', directive('job'));
        return (await lab.rye().threads.plan({ directiveId: 'job' })).tools;
      },
    },
    {
      name: 'writes a file through a refused call: nothing is written',
      expected: ['capability_denied', false],
      run: async (lab) => {
        const code = await call(LS, 'rye_file_system_write', { path: 'x', content: 'x' })(lab);
        return [code, existsSync(join(lab.project, 'x'))];
      },
    },
    {
      // Requirement: search-reveals-forbidden
      name: 'finds by search only what it may fetch',
      expected: ['public/note'],
      run: async (lab) => {
        for (const id of ['public/note', 'private/note'])
          lab.signed(`knowledge/${id}.md`, '---\nname: note\ntitle: Zebra\n---\nzebra crossing\n');
        await lab.model([{ steps: [toolUse('rye_search', { query: 'zebra' })] }, DONE]);
        lab.signed(
          'directives/job.md',
          directive('job', {
            permissions:
              '<execute><tool>rye/search</tool></execute><fetch><knowledge>public/*</knowledge></fetch>',
          }),
        );
        const result = await lab.run('job');
        const events = JSON.stringify(await lab.events(result.thread_id));
        return ['public/note', 'private/note'].filter((id) => events.includes(`${id}: `));
      },
    },
    {
      // Requirement: search-reveals-nothing
      name: 'counts by search what it may not fetch: the total tells nothing',
      expected: ['"total": 1', '"total": 0'],
      run: async (lab) => {
        for (const id of ['private/a', 'private/b', 'private/c', 'public/note'])
          lab.signed(`knowledge/${id}.md`, `---\ntitle: Zebra\n---\nzebra in ${id}\n`);
        const find = (query: string): WireTurn => ({
          steps: [toolUse('rye_fetch', { query, scope: 'knowledge', limit: 1 })],
        });
        const server = await lab.model([find('zebra'), find('zebra private'), DONE]);
        lab.signed(
          'directives/job.md',
          directive('job', { permissions: '<fetch><knowledge>public/*</knowledge></fetch>' }),
        );
        await lab.run('job');
        const seen = JSON.stringify(server.requests.at(-1)?.body.messages).replaceAll('\\', '');
        return seen.match(/"total": \d+/g);
      },
    },
    {
      // Requirement: tools-vanish, no-tool-vanishes
      name: 'offers more tools than the token budget: none vanishes',
      expected: [40, 'completed', true],
      run: async (lab) => {
        for (let index = 0; index < 40; index += 1) {
          const header = `description: ${'word '.repeat(200)}\ntraits: {risk: safe}`;
          lab.signed(`tools/many/t${index}.sh`, shellTool('echo {}', header));
        }
        const server = await lab.model(() => DONE);
        lab.signed(
          'directives/job.md',
          directive('job', {
            permissions:
              '<execute><tool>many/*</tool></execute><acknowledge risk="elevated">a test</acknowledge>',
          }),
        );
        const result = await lab.run('job');
        const body = JSON.stringify(server.requests[0]?.body);
        const named = Array.from({ length: 40 }, (_, i) => `many_t${i}`).filter(
          (name) => body.includes(`${name}\\"`) || body.includes(`${name}"`),
        );
        return [named.length, result.status, body.includes('tool_search')];
      },
    },
  ]);
});

describe('grants', () => {
  attacks([
    { name: 'grants everything without a word about it', code: 'risk_blocked', run: plan('*') },
    {
      // Requirement: acknowledgement-only-warns
      name: 'grants a shell without acknowledgement',
      code: 'acknowledge_required',
      run: plan('<execute><tool>rye/bash</tool></execute>'),
    },
    {
      name: 'grants a shell through a wildcard',
      code: 'acknowledge_required',
      run: plan('<execute><tool>rye/*</tool></execute>'),
    },
    {
      name: 'acknowledges less than it needs',
      code: 'acknowledge_required',
      run: plan(
        '<execute><tool>rye/bash</tool></execute><acknowledge risk="write">x</acknowledge>',
      ),
    },
    {
      name: 'acknowledges elevated for everything',
      code: 'risk_blocked',
      run: plan('*<acknowledge risk="elevated">x</acknowledge>'),
    },
    {
      name: 'acknowledges a risk that does not exist',
      code: 'permission_malformed',
      run: plan('<execute><tool>rye/bash</tool></execute><acknowledge risk="all">x</acknowledge>'),
    },
    {
      name: 'signs without acknowledgement',
      code: 'acknowledge_required',
      run: plan('<sign>*</sign>'),
    },
    {
      name: 'grants an item tool that declares no risk',
      code: 'acknowledge_required',
      run: (lab) => {
        lab.signed('tools/t.sh', shellTool('id', 'description: Undeclared.'));
        return plan('<execute><tool>t</tool></execute>')(lab);
      },
    },
    {
      name: 'declares a shell harmless in its own header',
      code: 'acknowledge_required',
      run: (lab) => {
        lab.signed('tools/mcp/x/t.sh', shellTool('id'));
        return plan('<execute><tool>mcp/x/t</tool></execute>')(lab);
      },
    },
    {
      name: 'uses an unknown tag in permissions',
      code: 'permission_malformed',
      run: plan('<load><tool>rye/bash</tool></load>'),
    },
    {
      name: 'writes a pattern that does not parse',
      code: 'permission_malformed',
      run: plan('<execute><tool>rye/../bash</tool></execute>'),
    },
    {
      // Requirement: flattened-names-collide
      name: 'grants two tools of one wire name',
      code: 'wire_name_collision',
      run: (lab) => {
        lab.signed('tools/demo/do_it.sh', shellTool('echo 1'));
        lab.signed('tools/demo/do-it.sh', shellTool('echo 2'));
        return plan('<execute><tool>demo/*</tool></execute>')(lab);
      },
    },
    ...['tool/search', 'directive/return'].map(
      (id): Attack => ({
        // Requirement: own-tool-search
        name: `takes a name that rye needs itself: ${id}`,
        code: 'wire_name_collision',
        run: (lab) => {
          lab.signed(`tools/${id}.sh`, shellTool('echo 1'));
          return plan(`<execute><tool>${id}</tool></execute>`)(lab);
        },
      }),
    ),
    {
      name: 'takes the wire name of a built-in tool',
      code: 'wire_name_collision',
      run: (lab) => {
        lab.signed('tools/rye/file_system/ls.sh', shellTool('echo 1'));
        return plan(`${LS}<execute><tool>rye/file_system/ls</tool></execute>`)(lab);
      },
    },
    {
      name: 'widens what its ancestor put a ceiling on',
      code: 'ceiling_exceeded',
      run: (lab) => {
        lab.signed(
          'directives/job.md',
          directive('job', {
            extends: 'rye/core/base_review',
            permissions:
              '<execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">x</acknowledge>',
          }),
        );
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
  ]);
});

describe('children', () => {
  const parentOf = (permissions: string): string =>
    directive('job', {
      permissions: `<execute><directive>child</directive></execute>${permissions}`,
    });

  const spawnsChild = async (lab: Lab, parent: string, childText: string): Promise<string> => {
    await lab.model((request) => {
      const isChild = JSON.stringify(request.body.messages[0]).includes('name=\\"child\\"');
      const isFirst = request.body.messages.length === 1;
      if (isChild) {
        return isFirst ? { steps: [toolUse('rye_bash', { command: 'id' })] } : DONE;
      }
      return isFirst
        ? { steps: [toolUse('rye_execute', { item_type: 'directive', item_id: 'child' })] }
        : DONE;
    });
    lab.signed('directives/job.md', parent);
    lab.signed('directives/child.md', childText);
    const result = await lab.run('job');
    const [childId] = result.children;
    if (childId === undefined) return await settledCode(lab, result);
    return await settledCode(lab, { ...result, thread_id: childId });
  };
  const BASH =
    '<execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">needed</acknowledge>';

  attacks([
    {
      // Requirement: children-gain-nothing
      name: 'declares a shell that its parent does not hold',
      code: 'capability_denied',
      run: (lab) => spawnsChild(lab, parentOf(''), child(BASH)),
    },
    {
      // Requirement: forged-parent-refused
      name: 'names a forged parent',
      code: 'thread_tampered',
      run: async (lab) => {
        const { thread_id: id } = await lab.run('hello');
        const path = `state/threads/${id}/thread.json`;
        lab.write(path, lab.read(path).replace('"rye.execute.tool.rye.core.greet"', '"rye.*"'));
        return await lab.run('hello', { parentThreadId: id });
      },
    },
    {
      // Requirement: parent-document-trusted
      name: 'names a parent whose limits were raised',
      code: 'thread_tampered',
      run: async (lab) => {
        const { thread_id: id } = await lab.run('hello');
        const path = `state/threads/${id}/thread.json`;
        lab.write(path, lab.read(path).replace('"turns": 6', '"turns": 600'));
        return await lab.run('hello', { parentThreadId: id });
      },
    },
    {
      name: 'names a parent whose thread.json is that of another thread',
      code: 'thread_tampered',
      run: async (lab) => {
        const one = await lab.run('hello', { threadId: 'one' });
        const two = await lab.run('hello', { threadId: 'two' });
        lab.write(
          `state/threads/${two.thread_id}/thread.json`,
          lab.read(`state/threads/${one.thread_id}/thread.json`),
        );
        return await lab.run('hello', { parentThreadId: 'two' });
      },
    },
    {
      name: 'names a parent without a signature',
      code: 'thread_tampered',
      run: async (lab) => {
        await lab.run('hello', { threadId: 'one' });
        const { _signature: _dropped, ...document } = JSON.parse(
          lab.read('state/threads/one/thread.json'),
        );
        lab.write('state/threads/one/thread.json', JSON.stringify(document));
        return await lab.run('hello', { parentThreadId: 'one' });
      },
    },
    {
      name: 'names a parent by a path out of the threads folder',
      code: 'invalid_thread_id',
      run: (lab) => lab.run('hello', { parentThreadId: '../../../etc' }),
    },
    {
      name: 'names a parent by a path in the environment',
      code: 'invalid_thread_id',
      run: (lab) => {
        lab.env['RYE_PARENT_THREAD_ID'] = '../../x';
        return lab.run('hello');
      },
    },
    {
      name: 'names a parent of another project',
      code: 'thread_not_found',
      run: (lab) => {
        lab.env['RYE_PARENT_THREAD_ID'] = 'hello-1700000000';
        return lab.run('hello');
      },
    },
    {
      name: 'runs a tool from inside of a thread that may not',
      code: 'capability_denied',
      run: async (lab) => {
        await lab.run('hello', { threadId: 'one' });
        lab.env['RYE_PARENT_THREAD_ID'] = 'one';
        return await lab.rye().threads.executeTool({
          toolId: 'rye/bash',
          params: { command: 'id' },
          acknowledge: ['elevated'],
        });
      },
    },
    {
      name: 'borrows the budget of a parent that has ended',
      code: 'illegal_transition',
      run: async (lab) => {
        await lab.run('hello', { threadId: 'one' });
        return codeOf(await lab.run('hello', { parentThreadId: 'one' }));
      },
    },
    {
      name: 'goes deeper than its parent allows',
      code: 'limit_depth',
      run: async (lab) => {
        const job = directive('job', {
          limits: 'depth="0" spend="0.10"',
          permissions: '<execute><directive>child</directive></execute>',
        });
        return await spawnsChild(lab, job, directive('child'));
      },
    },
    {
      // Requirement: thread-id-as-path
      name: 'takes an id out of the threads folder',
      code: 'invalid_thread_id',
      run: (lab) => lab.run('hello', { threadId: '../../evil' }),
    },
    {
      name: 'takes the id of another thread',
      code: 'thread_id_taken',
      run: async (lab) => {
        await lab.run('hello', { threadId: 'one' });
        return await lab.run('hello', { threadId: 'one' });
      },
    },
  ]);
});

describe('hooks', () => {
  const HOOK = (capabilities: string): string =>
    `hooks:\n  - id: h\n    event: thread_started\n    ${capabilities}\n    on_error: fail\n    action: {primary: execute, item_type: tool, item_id: rye/bash, params: {command: echo hooked}}\n`;

  attacks([
    {
      // Requirement: hooks-within-thread
      name: 'runs a shell that its thread does not hold, from a signed project hook',
      code: 'capability_denied',
      run: async (lab) => {
        await lab.model(() => DONE);
        lab.signed('config/agent/hooks.yaml', HOOK('enabled: true'));
        lab.signed('directives/job.md', directive('job', { permissions: LS }));
        return codeOf(await lab.run('job'));
      },
    },
    {
      name: 'runs a shell that its thread does not hold, from a hook of the directive',
      code: 'capability_denied',
      run: async (lab) => {
        await lab.model(() => DONE);
        lab.signed(
          'directives/job.md',
          directive('job', {
            permissions: LS,
            metadata:
              '<hooks><hook id="h" event="thread_started" on_error="fail"><action><execute item_type="tool" item_id="rye/bash"><param name="command">id</param></execute></action></hook></hooks>',
          }),
        );
        return codeOf(await lab.run('job'));
      },
    },
  ]);
});
