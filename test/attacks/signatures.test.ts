import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { loadTrustPolicy } from '../../src/kernel/items/config-fs.ts';
import { canonicalJson } from '../../src/kernel/trust/canonical-json.ts';
import { sha256Hex } from '../../src/kernel/trust/keys.ts';
import { signedOlder } from '../helpers/signed-files.ts';
import { text as answer, toolUse } from '../helpers/wire-server.ts';
import { attacks, directive, harmless, type Lab, settledCode, shellTool } from './lab.ts';

const note = (name: string, members = ''): string =>
  `---\nname: ${name}\ntitle: A note\nversion: "1.0.0"\nentry_type: note\ncategory: howto\n${members}---\nRead me.\n`;
const yamlNote = (members: string): string =>
  `name: example\ntitle: A note\nversion: "1.0.0"\nentry_type: note\n${members}`;
const SERVER = 'servers:\n  evil: {command: touch, args: [PWNED]}\n';
const HOOKS =
  'hooks:\n  - {id: h, event: tool_gate, action: {primary: execute, item_type: tool, item_id: t}}\n';
const HTML = ['<!-- ', ' -->'] as const;
const HASH = ['# ', ''] as const;

const verify = async (lab: Lab, type: 'config' | 'rule' | 'skill' | 'tool', id: string) => {
  const [outcome] = await lab.rye().items.verify(type, id);
  return outcome?.error?.code ?? 'accepted';
};
const copy = (lab: Lab, from: string, to: string): string => lab.write(to, lab.read(from));
const runTool = (lab: Lab, toolId: string) =>
  lab.rye().threads.executeTool({ toolId, acknowledge: ['elevated'] });

describe('a file that was signed as one kind', () => {
  attacks([
    {
      // Requirement: signature-binds-kind
      name: 'makes configuration of MCP servers of signed knowledge',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('knowledge/example.yaml', yamlNote(SERVER));
        copy(lab, 'knowledge/example.yaml', 'config/mcp.yaml');
        return verify(lab, 'config', 'mcp');
      },
    },
    {
      name: 'makes hooks of signed knowledge',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('knowledge/example.yaml', yamlNote(HOOKS));
        copy(lab, 'knowledge/example.yaml', 'config/agent/hooks.yaml');
        return verify(lab, 'config', 'agent/hooks');
      },
    },
    {
      name: 'makes other configuration of signed knowledge, which would only be warned about unsigned',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('knowledge/example.yaml', yamlNote(''));
        copy(lab, 'knowledge/example.yaml', 'config/agent/agent.yaml');
        lab.signed('directives/job.md', directive('job'));
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      name: 'makes a rule of signed knowledge',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('knowledge/howto/x.md', note('x', 'condition: secret\n'));
        copy(lab, 'knowledge/howto/x.md', 'rules/x.md');
        return verify(lab, 'rule', 'x');
      },
    },
    {
      name: 'makes a skill of signed knowledge',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('knowledge/howto/x.md', note('x', 'description: Helps.\n'));
        copy(lab, 'knowledge/howto/x.md', 'skills/x/SKILL.md');
        return verify(lab, 'skill', 'x');
      },
    },
    {
      name: 'makes a tool of signed configuration',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('config/tools.yaml', 'description: A tool.\ncommand: [touch, PWNED]\n');
        copy(lab, 'config/tools.yaml', 'tools/tools.yaml');
        return runTool(lab, 'tools');
      },
    },
    {
      name: 'fetches signed knowledge as another entry, which would only be warned about unsigned',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('knowledge/howto/x.md', note('x'));
        copy(lab, 'knowledge/howto/x.md', 'knowledge/howto/y.md');
        return lab.rye().items.fetch('knowledge', 'howto/y');
      },
    },
  ]);

  harmless([
    {
      name: 'starts no server of a signed note that was copied over mcp.yaml',
      expected: ['not run', false, true],
      run: async (lab) => {
        const command = `servers:\n  evil: {command: touch, args: [${join(lab.project, 'PWNED')}]}\n`;
        lab.signed('knowledge/example.yaml', yamlNote(command));
        copy(lab, 'knowledge/example.yaml', 'config/mcp.yaml');
        const called = await runTool(lab, 'mcp/evil/x').then(
          () => 'run',
          ({ message }: Error) => message,
        );
        const told = 'config mcp was signed as knowledge example';
        return ['not run', existsSync(join(lab.project, 'PWNED')), called.includes(told)];
      },
    },
    {
      // Requirement: copied-provider-moves-no-keys
      name: 'sends no key to the server of another provider, whose signed file was copied',
      expected: ['guard_changed', 0, 0],
      run: async (lab) => {
        const [thief, own] = [await lab.model([]), await lab.model([{ steps: [answer('done')] }])];
        lab.env['MINE_KEY'] = 'sk-mine-0123456789abcdef';
        lab.write(
          '~/.ai/config/agent/providers/mine.yaml',
          `kind: anthropic\nbase_url: ${own.url}\napi_key_env: MINE_KEY\nprices_as_of: "2026-11-21"\nmodels: {m: {context_window: 9000, max_output_tokens: 900, pricing: {input: 1, output: 1}}}\n`,
        );
        lab.signed('config/agent/providers/local.yaml', `base_url: ${thief.url}\n`);
        copy(lab, 'config/agent/providers/local.yaml', 'config/agent/providers/mine.yaml');
        rmSync(lab.path('config/agent/providers/local.yaml'));
        lab.signed('directives/job.md', directive('job'));
        const refused = await lab.run('job', { model: 'mine/m' }).then(
          () => 'run',
          ({ code }: { code: string }) => code,
        );
        return [refused, thief.requests.length, own.requests.length];
      },
    },
    {
      name: 'is good in another project and in the user space under the same id',
      expected: ['accepted', 'accepted'],
      run: async (lab) => {
        lab.signed('config/agent/hooks.yaml', 'hooks: []\n');
        const [other, empty] = [join(lab.project, 'other'), join(lab.project, 'empty')];
        mkdirSync(join(other, '.ai/config/agent'), { recursive: true });
        mkdirSync(empty);
        copyFileSync(
          lab.path('config/agent/hooks.yaml'),
          join(other, '.ai/config/agent/hooks.yaml'),
        );
        copy(lab, 'config/agent/hooks.yaml', '~/.ai/config/agent/hooks.yaml');
        const verdicts = [other, empty].map(async (projectPath) => {
          const { items } = lab.rye({ projectPath });
          const outcomes = await items.verify('config', 'agent/hooks');
          const own = outcomes.find(({ space }) => space !== 'system');
          return own?.error?.code ?? (own ? 'accepted' : 'not found');
        });
        return await Promise.all(verdicts);
      },
    },
  ]);
});

describe('a file that was signed as one id', () => {
  attacks([
    {
      // Requirement: signature-binds-id
      name: 'copies a signed provider file under the name of another provider',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('config/agent/providers/local.yaml', 'base_url: http://127.0.0.1:1\n');
        copy(lab, 'config/agent/providers/local.yaml', 'config/agent/providers/openai.yaml');
        return verify(lab, 'config', 'agent/providers/openai');
      },
    },
    {
      name: 'copies signed configuration over the hooks, with the other extension',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('config/agent/agent.yaml', HOOKS);
        copy(lab, 'config/agent/agent.yaml', 'config/agent/hooks.yml');
        return verify(lab, 'config', 'agent/hooks');
      },
    },
    {
      name: 'has two files for one configuration',
      code: 'duplicate_item',
      run: async (lab) => {
        lab.signed('config/mcp.yaml', 'servers: {}\n');
        lab.signed('config/mcp.yml', SERVER);
        lab.signed(
          'directives/job.md',
          directive('job', { permissions: '<execute><tool>mcp/*</tool></execute>' }),
        );
        return verify(lab, 'config', 'mcp');
      },
    },
    {
      // Requirement: grant-names-one-tool
      name: 'copies a signed tool to the id that a grant names',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('tools/deploy/wipe.sh', shellTool("echo '{}'"));
        copy(lab, 'tools/deploy/wipe.sh', 'tools/notes/list.sh');
        return runTool(lab, 'notes/list');
      },
    },
    {
      // Requirement: signed-tool-replaces-no-shipped
      name: 'copies a signed tool over one that rye ships',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('tools/deploy/wipe.js', 'console.log("{}")\n');
        copy(lab, 'tools/deploy/wipe.js', 'tools/rye/core/greet.js');
        return runTool(lab, 'rye/core/greet');
      },
    },
    {
      // Requirement: signature-binds-interpreter
      name: 'gives a signed tool the extension of another interpreter',
      code: 'item_moved',
      run: (lab) => {
        const path = lab.signed('tools/t.sh', shellTool("echo '{}'"));
        renameSync(path, lab.path('tools/t.py'));
        return runTool(lab, 't');
      },
    },
    {
      name: 'copies a signed rule over one that rye ships',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('rules/mine.md', '---\nname: mine\ncondition: [a]\n---\nObey me.\n');
        copy(lab, 'rules/mine.md', 'rules/go/go-no-panic.md');
        return verify(lab, 'rule', 'go/go-no-panic');
      },
    },
    {
      name: 'copies the signed list of one skill into the folder of another',
      code: 'item_moved',
      run: async (lab) => {
        lab.write('skills/one/SKILL.md', '---\nname: one\ndescription: Helps.\n---\nRead.\n');
        await lab.sign('skill', 'one');
        copy(lab, 'skills/one/SKILL.md', 'skills/two/SKILL.md');
        copy(lab, 'skills/one/.rye-files.json', 'skills/two/.rye-files.json');
        return verify(lab, 'skill', 'two');
      },
    },
    {
      name: 'copies the capability snapshot of one thread into another',
      code: 'item_moved',
      run: async (lab) => {
        for (const threadId of ['one', 'two']) await lab.run('hello', { threadId });
        copy(lab, 'state/threads/two/capabilities.md', 'state/threads/one/capabilities.md');
        return failedCheck(lab, 'one');
      },
    },
    {
      name: 'copies the export of one thread over that of another',
      code: 'item_moved',
      run: async (lab) => {
        for (const threadId of ['one', 'two']) await lab.run('hello', { threadId });
        const folder = 'knowledge/agent/threads/hello';
        copy(lab, `${folder}/two.md`, `${folder}/one.md`);
        return failedCheck(lab, 'one');
      },
    },
  ]);

  harmless([
    {
      name: 'loosens no trust policy as another configuration file',
      expected: 'required',
      run: async (lab) => {
        lab.signed('config/agent/agent.yaml', 'execute: {project: "off"}\n');
        copy(lab, 'config/agent/agent.yaml', 'config/trust.yaml');
        const base = new Workspace({
          features: FEATURES,
          projectPath: lab.project,
          userSpacePath: lab.home,
          env: {},
        });
        const policy = await loadTrustPolicy({ ...base.verification, onNotice: () => undefined });
        base.close();
        return policy.execute.project;
      },
    },
  ]);
});

const snapshot = (id: string): string => `state/threads/${id}/capabilities.md`;
const exported = (name: string, id: string): string => `knowledge/agent/threads/${name}/${id}.md`;

/** The thread.json of a thread as it was signed before signatures named what they sign. */
function olderDocument(lab: Lab, id: string): string {
  const text = lab.read(`state/threads/${id}/thread.json`);
  const { _signature: _replaced, ...document } = JSON.parse(text) as Record<string, unknown>;
  return JSON.stringify({ ...document, _signature: olderLine(lab, canonicalJson(document)) });
}

function olderLine(lab: Lab, content: string): string {
  const hash = sha256Hex(content);
  const key = lab.key();
  return `rye:signed:2026-01-02T03:04:05Z:${hash}:${key.sign(hash)}:${key.keyId}`;
}

async function failedCheck(lab: Lab, threadId: string): Promise<string> {
  const { ok, checks } = await lab.rye().threads.verify(threadId);
  return ok ? 'ok' : (checks.find((check) => !check.ok)?.error?.code ?? 'no code');
}

describe('the signature line', () => {
  attacks([
    {
      // Requirement: signature-time-fixed
      name: 'dates a signed directive back',
      code: 'signature_invalid',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        lab.write('directives/job.md', lab.read('directives/job.md').replace(':2026-', ':2020-'));
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      name: 'writes another id into the line of a copy',
      code: 'signature_invalid',
      run: (lab) => {
        lab.signed('tools/deploy/wipe.sh', shellTool("echo '{}'"));
        const text = lab.read('tools/deploy/wipe.sh').replace('deploy/wipe:', 'notes/list:');
        lab.write('tools/notes/list.sh', text);
        return runTool(lab, 'notes/list');
      },
    },
    {
      name: 'adds the suffix of a provider, which older signatures may have',
      code: 'unsigned',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        const text = lab.read('directives/job.md').replace(' -->', '|github@mallory -->');
        lab.write('directives/job.md', text);
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      // Requirement: no-downgrade
      name: 'drops version, kind and id, to be read as version 1',
      code: 'signature_invalid',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        const text = lab.read('directives/job.md');
        lab.write('directives/job.md', text.replace('v2:', '').replace('directive:job:', ''));
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
  ]);
});

describe('a thread that may sign', () => {
  attacks([
    {
      // Requirement: model-signs-no-configuration
      name: 'lets a model that may sign everything sign configuration',
      code: 'capability_denied',
      run: async (lab) => {
        lab.write('config/agent/extra.yaml', HOOKS);
        const call = toolUse('rye_sign', { item_type: 'config', item_id: 'agent/extra' });
        await lab.model([{ steps: [call] }, { steps: [answer('done')] }]);
        const permissions = '<sign>*</sign><acknowledge risk="elevated">x</acknowledge>';
        lab.signed('directives/job.md', directive('job', { permissions }));
        return settledCode(lab, await lab.run('job'));
      },
    },
  ]);
});

// Requirement: model-signature-waits
describe('an item that a model wrote and signed', () => {
  const GRANTS =
    '<execute><tool>rye/file-system/*</tool><directive>*</directive></execute><sign>*</sign><fetch>*</fetch><acknowledge risk="elevated">x</acknowledge>';
  const TOOL = 'version: "1.0.0"\ndescription: A tool.\ntraits: {risk: safe}';

  /** Lets a model sign an item, and returns the outcome of its signature and of a next call. */
  async function made(lab: Lab, type: string, path: string, text: string, next?: object) {
    lab.write(path, text);
    const calls = [toolUse('rye_sign', { item_type: type, item_id: 'made' })];
    const more = next ? [{ steps: [toolUse('rye_execute', next)] }] : [];
    await lab.model([{ steps: calls }, ...more, { steps: [answer('done')] }]);
    lab.signed('directives/job.md', directive('job', { permissions: GRANTS }));
    const result = await lab.run('job');
    if ((await settledCode(lab, result)) !== 'ok') throw new Error('it was not signed');
    return result;
  }

  attacks([
    {
      name: 'is run by a person',
      code: 'signed_by_thread',
      run: async (lab) => {
        await made(lab, 'directive', 'directives/made.md', directive('made'));
        return await lab.run('made');
      },
    },
    {
      name: 'is run by its thread',
      code: 'signed_by_thread',
      run: async (lab) => {
        const next = { item_type: 'directive', item_id: 'made' };
        const result = await made(lab, 'directive', 'directives/made.md', directive('made'), next);
        return await settledCode(lab, result, 1);
      },
    },
    {
      name: 'is a tool that a person runs',
      code: 'signed_by_thread',
      run: async (lab) => {
        await made(lab, 'tool', 'tools/made.sh', shellTool("echo '{}'", TOOL));
        return await lab.rye().threads.executeTool({ toolId: 'made', acknowledge: ['elevated'] });
      },
    },
    {
      name: 'loses the name of its thread',
      code: 'unsigned',
      run: async (lab) => {
        const { thread_id: thread } = await made(
          lab,
          'directive',
          'directives/made.md',
          directive('made'),
        );
        const text = lab.read('directives/made.md');
        lab.write('directives/made.md', text.replace(`${thread}:`, ''));
        return await lab.run('made');
      },
    },
    {
      name: 'takes the form of one that a person signed',
      code: 'signature_invalid',
      run: async (lab) => {
        const { thread_id: thread } = await made(
          lab,
          'directive',
          'directives/made.md',
          directive('made'),
        );
        const text = lab.read('directives/made.md').replace('v3:', 'v2:');
        lab.write('directives/made.md', text.replace(`${thread}:`, ''));
        return await lab.run('made');
      },
    },
    {
      name: 'keeps its signature in another file',
      code: 'signed_by_thread',
      run: async (lab) => {
        lab.signed('config/trust.yaml', 'signing: detached\n');
        await made(lab, 'directive', 'directives/made.md', directive('made'));
        return await lab.run('made');
      },
    },
  ]);

  harmless([
    {
      name: 'is listed as such, and runs once a person has signed it; what a person signed stays so',
      expected: ['by_thread', 'signed', 'signed', 'completed'],
      run: async (lab) => {
        const state = async () => {
          const items = await lab.rye().items.list('directive', { space: 'project' });
          return items.find(({ id }) => id === 'made')?.signature;
        };
        await made(lab, 'directive', 'directives/made.md', directive('made'));
        const before = await state();
        await lab.sign('directive', 'made');
        const after = await state();
        await made(lab, 'directive', 'directives/made.md', lab.read('directives/made.md'));
        const again = await state();
        await lab.model([{ steps: [answer('done')] }]);
        return [before, after, again, (await lab.run('made')).status];
      },
    },
    {
      name: 'is knowledge: it is read, and verify names the thread',
      expected: [true, true],
      run: async (lab) => {
        const text = note('made').replace('howto', '""');
        const { thread_id: thread } = await made(lab, 'knowledge', 'knowledge/made.md', text);
        const [item] = await lab.rye().items.verify('knowledge', 'made');
        return [item?.ok, item?.signed_by_thread === thread];
      },
    },
  ]);
});

describe('a version 1 signature', () => {
  const older = (lab: Lab, path: string, text: string): string =>
    lab.write(path, signedOlder(text, lab.key(), path.endsWith('.md') ? HTML : HASH));
  const header = (members: string): string =>
    `description: A tool.\n${members}traits: {risk: safe}`;

  attacks([
    ...(
      [
        // Requirement: old-form-not-for-configuration
        ['offers configuration', 'config', 'agent/hooks', 'config/agent/hooks.yaml', HOOKS],
        [
          'offers a provider',
          'config',
          'agent/providers/x',
          'config/agent/providers/x.yaml',
          'models: []\n',
        ],
        [
          'offers a rule',
          'rule',
          'x',
          'rules/x.md',
          '---\nname: x\ncondition: [a]\n---\nObey me.\n',
        ],
        [
          'offers a skill',
          'skill',
          'x',
          'skills/x/SKILL.md',
          '---\nname: x\ndescription: D.\n---\nHi.\n',
        ],
      ] as const
    ).map(([name, type, id, path, text]) => ({
      name,
      code: 'signature_outdated' as const,
      run: (lab: Lab) => {
        older(lab, path, text);
        return verify(lab, type, id);
      },
    })),
    {
      name: 'offers a list of the files of a skill',
      code: 'signature_outdated',
      run: (lab) => {
        const text = '---\nname: x\ndescription: D.\n---\nHi.\n';
        lab.write('skills/x/SKILL.md', text);
        const list = { skill: 'x', files: { 'SKILL.md': sha256Hex(text) } };
        const line = olderLine(lab, canonicalJson(list));
        lab.write('skills/x/.rye-files.json', JSON.stringify({ ...list, _signature: line }));
        return verify(lab, 'skill', 'x');
      },
    },
    {
      name: 'offers a directive that declares no category',
      code: 'signature_outdated',
      run: (lab) => {
        older(lab, 'directives/job.md', directive('job').replace('<category></category>', ''));
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      name: 'offers a tool that declares a category and no name',
      code: 'signature_outdated',
      run: (lab) => {
        older(lab, 'tools/notes/list.sh', shellTool("echo '{}'", header('category: notes\n')));
        return runTool(lab, 'notes/list');
      },
    },
    {
      name: 'offers a tool that declares another name',
      code: 'item_moved',
      run: (lab) => {
        const text = shellTool("echo '{}'", header('name: wipe\ncategory: notes\n'));
        older(lab, 'tools/notes/list.sh', text);
        return runTool(lab, 'notes/list');
      },
    },
    {
      name: 'offers a tool in place of one that rye ships',
      code: 'signature_outdated',
      run: (lab) => {
        const text = shellTool("echo '{}'", header('name: greet\ncategory: rye/core\n'));
        older(lab, 'tools/rye/core/greet.sh', text);
        return runTool(lab, 'rye/core/greet');
      },
    },
    {
      name: 'offers knowledge that declares no category as context',
      code: 'signature_outdated',
      run: (lab) => {
        older(lab, 'knowledge/howto/x.md', note('x').replace('category: howto\n', ''));
        const metadata = '<context><before>howto/x</before></context>';
        lab.signed('directives/job.md', directive('job', { metadata }));
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      name: 'offers a directive as knowledge that declares everything but its kind',
      code: 'signature_outdated',
      run: (lab) => {
        older(lab, 'knowledge/howto/x.md', note('x').replace('entry_type: note\n', ''));
        const metadata = '<context><before>howto/x</before></context>';
        lab.signed('directives/job.md', directive('job', { metadata }));
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
  ]);

  harmless([
    {
      name: 'stays good for a directive, a tool and knowledge that declare kind and id',
      expected: ['job', true, 1],
      run: async (lab) => {
        older(lab, 'knowledge/howto/x.md', note('x'));
        const metadata = '<context><before>howto/x</before></context>';
        older(lab, 'directives/job.md', directive('job', { metadata }));
        const text = shellTool("echo '{}'", header('name: list\ncategory: notes\n'));
        older(lab, 'tools/notes/list.sh', text);
        const plan = await lab.rye().threads.plan({ directiveId: 'job' });
        const result = await lab.rye().threads.executeTool({ toolId: 'notes/list' });
        const [listed] = await lab.rye().items.list('tool', { space: 'project' });
        return [plan.directive.id, result.success, listed?.signature_version];
      },
    },
    {
      name: 'stays good for the records of a thread, and for no other thread',
      expected: ['ok', 'ok', 'item_moved', 'item_moved', 'thread_tampered'],
      run: async (lab) => {
        lab.signed('directives/job.md', directive('job', { permissions: '<fetch>*</fetch>' }));
        await lab.model(() => ({ steps: [answer('done')] }));
        await lab.run('hello', { threadId: 'one' });
        await lab.run('job', { threadId: 'two' });
        for (const [id, name] of [
          ['one', 'hello'],
          ['two', 'job'],
        ] as const) {
          for (const path of [snapshot(id), exported(name, id)])
            older(lab, path, lab.read(path).slice(lab.read(path).indexOf('\n') + 1));
          lab.write(`state/threads/${id}/thread.json`, olderDocument(lab, id));
        }
        const answers = [await failedCheck(lab, 'one'), await failedCheck(lab, 'two')];
        const [own, entry] = [lab.read(snapshot('one')), lab.read(exported('hello', 'one'))];
        copy(lab, snapshot('two'), snapshot('one'));
        answers.push(await failedCheck(lab, 'one'));
        lab.write(snapshot('one'), own);
        copy(lab, exported('job', 'two'), exported('hello', 'one'));
        answers.push(await failedCheck(lab, 'one'));
        lab.write(exported('hello', 'one'), entry);
        copy(lab, 'state/threads/two/thread.json', 'state/threads/one/thread.json');
        return [...answers, await failedCheck(lab, 'one')];
      },
    },
    {
      name: 'is named by rye validate, whether it is still good or not',
      expected: ['job', 'x'],
      run: async (lab) => {
        older(lab, 'directives/job.md', directive('job'));
        older(lab, 'rules/x.md', '---\nname: x\ncondition: [a]\n---\nObey me.\n');
        lab.signed('directives/other.md', directive('other'));
        const { problems } = await lab.rye().items.validate();
        const named = problems.filter(({ code }) => code === 'signature_outdated');
        return named.map(({ message }) => message.split(' ').at(-1));
      },
    },
    {
      name: 'is replaced by rye sign though the content is the same, and a new one is not',
      expected: ['signed', 'accepted', 'unchanged', true],
      run: async (lab) => {
        older(lab, 'config/agent/hooks.yaml', 'hooks: []\n');
        const [first] = await lab.rye().items.sign('config', 'agent/hooks');
        const text = lab.read('config/agent/hooks.yaml');
        const verdict = await verify(lab, 'config', 'agent/hooks');
        const [second] = await lab.rye().items.sign('config', 'agent/hooks');
        const isSame = lab.read('config/agent/hooks.yaml') === text;
        return [first?.status, verdict, second?.status, isSame];
      },
    },
  ]);
});
