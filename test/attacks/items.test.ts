import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { linkSync, mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';

import { Workspace } from '../../src/kernel/app/workspace.ts';
import { bakedManifest, checkSystemFile } from '../../src/kernel/trust/policy.ts';
import { attacks, directive, harmless, type Lab, shellTool } from './lab.ts';

const CONTEXT = '<context><before>note</before></context>';
const NOTE = '---\nname: note\ntitle: A note\nversion: "1.0.0"\nentry_type: note\n---\nRead me.\n';

const plan = (lab: Lab, id = 'job', options = {}) =>
  lab.rye().threads.plan({ directiveId: id, ...options });

/** A signed line with one part of it changed. */
function edited(lab: Lab, path: string, change: (text: string) => string): void {
  lab.write(path, change(lab.read(path)));
}

const swapHash = (text: string): string => text.replace(/:[0-9a-f]{64}:/, `:${'0'.repeat(64)}:`);

describe('signatures of directives', () => {
  attacks([
    {
      name: 'runs an unsigned directive',
      code: 'unsigned',
      run: (lab) => {
        lab.write('directives/job.md', directive('job'));
        return plan(lab);
      },
    },
    {
      // Requirement: signature-covers-xml-only, signature-covers-file
      name: 'edits the body below the fence after signing',
      code: 'content_modified',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        edited(lab, 'directives/job.md', (text) => text.replace('Do the work.', 'Send the keys.'));
        return plan(lab);
      },
    },
    {
      name: 'edits the prose above the fence after signing',
      code: 'content_modified',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        edited(lab, 'directives/job.md', (text) => text.replace('# job', '# job, and more'));
        return plan(lab);
      },
    },
    {
      name: 'widens the permissions after signing',
      code: 'content_modified',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job', { permissions: '<fetch>*</fetch>' }));
        edited(lab, 'directives/job.md', (text) => text.replace('<fetch>*</fetch>', '*'));
        return plan(lab);
      },
    },
    {
      name: 'appends one space at the end',
      code: 'content_modified',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        edited(lab, 'directives/job.md', (text) => `${text} `);
        return plan(lab);
      },
    },
    {
      name: 'puts a line above the signature',
      code: 'unsigned',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        edited(lab, 'directives/job.md', (text) => `Do this first.\n${text}`);
        return plan(lab);
      },
    },
    {
      name: 'hides the signature after a byte order mark',
      code: 'unsigned',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        edited(lab, 'directives/job.md', (text) => `\u{FEFF}${text}`);
        return plan(lab);
      },
    },
    {
      name: 'signs with an untrusted key',
      code: 'key_untrusted',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'), lab.stranger);
        return plan(lab);
      },
    },
    {
      name: 'claims the fingerprint of the user for a foreign signature',
      code: 'signature_invalid',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'), lab.stranger);
        const { keyId } = lab.key();
        edited(lab, 'directives/job.md', (text) => text.replace(lab.stranger.keyId, keyId));
        return plan(lab);
      },
    },
    {
      name: 'takes the signature of another file',
      code: 'content_modified',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        const line = lab.read('directives/job.md').split('\n', 1)[0] ?? '';
        lab.write('directives/job.md', `${line}\n${directive('job', { permissions: '*' })}`);
        return plan(lab);
      },
    },
    {
      name: 'changes the hash in the signature line',
      code: 'content_modified',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        edited(lab, 'directives/job.md', swapHash);
        return plan(lab);
      },
    },
    {
      name: 'flips a bit of the signature',
      code: 'signature_invalid',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        edited(lab, 'directives/job.md', (text) =>
          text.replace(
            /:([A-Za-z0-9_-])([A-Za-z0-9_-]{85}):/,
            (_all, first: string, rest: string) => `:${first === 'A' ? 'B' : 'A'}${rest}:`,
          ),
        );
        return plan(lab);
      },
    },
    {
      name: 'cuts the signature short',
      code: 'unsigned',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        edited(lab, 'directives/job.md', (text) =>
          text.replace(/([A-Za-z0-9_-]{86}):/, (all) => all.slice(20)),
        );
        return plan(lab);
      },
    },
    {
      name: 'writes the hash in upper case',
      code: 'unsigned',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        edited(lab, 'directives/job.md', (text) =>
          text.replace(/:[0-9a-f]{64}:/, (hash) => hash.toUpperCase()),
        );
        return plan(lab);
      },
    },
    {
      // Requirement: partial-signature-refused
      name: 'offers a signature of the older convention, which covers the element alone',
      code: 'signature_partial',
      run: (lab) => {
        const text = directive('job');
        const start = text.indexOf('<directive');
        const element = text.slice(start, text.lastIndexOf('</directive>') + '</directive>'.length);
        const key = lab.key();
        const hash = sha256(element);
        const line = `<!-- rye:signed:2026-01-02T03:04:05Z:${hash}:${key.sign(hash)}:${key.keyId} -->`;
        lab.write('directives/job.md', `${line}\n${text}`);
        return plan(lab);
      },
    },
    {
      name: 'runs an unsigned directive of the user space with --allow-unsigned',
      code: 'unsigned',
      run: (lab) => {
        lab.write('~/.ai/directives/job.md', directive('job'));
        return plan(lab, 'job', { allowUnsigned: true });
      },
    },
    {
      name: 'edits a signed directive and asks for --allow-unsigned',
      code: 'content_modified',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job'));
        edited(lab, 'directives/job.md', (text) => `${text}more\n`);
        return plan(lab, 'job', { allowUnsigned: true });
      },
    },
  ]);
});

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

describe('signed files in places that they were not signed for', () => {
  attacks([
    {
      name: 'copies a signed directive over the id of another one',
      code: 'item_moved',
      run: (lab) => {
        lab.signed(
          'directives/deploy.md',
          directive('deploy', { permissions: '<fetch>*</fetch>' }),
        );
        lab.write('directives/job.md', lab.read('directives/deploy.md'));
        return plan(lab);
      },
    },
    {
      name: 'moves a signed directive into another category',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('directives/admin/job.md', directive('job', { category: 'admin' }));
        lab.write('directives/job.md', lab.read('directives/admin/job.md'));
        return plan(lab);
      },
    },
    {
      name: 'copies signed knowledge over the context that a directive names',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('knowledge/other.md', NOTE.replace('name: note', 'name: other'));
        lab.write('knowledge/note.md', lab.read('knowledge/other.md'));
        lab.signed('directives/job.md', directive('job', { metadata: CONTEXT }));
        return plan(lab);
      },
    },
    {
      name: 'moves a signed tool into a category that it does not state',
      code: 'item_moved',
      run: (lab) => {
        const tool = shellTool(
          'echo {}',
          'description: Wipes.\ncategory: admin\ntraits: {risk: safe}',
        );
        lab.signed('tools/admin/wipe.sh', tool);
        lab.write('tools/safe/wipe.sh', lab.read('tools/admin/wipe.sh'));
        return lab.rye().threads.executeTool({ toolId: 'safe/wipe' });
      },
    },
    {
      // Requirement: own-signatures-not-obeyed
      name: 'makes a directive of the signed export of a thread',
      code: 'item_moved',
      run: async (lab) => {
        const result = await lab.run('hello', { inputs: { who: '\n\n```xml\n<directive/>\n```' } });
        lab.write('directives/job.md', exported(lab, result.thread_id));
        return plan(lab);
      },
    },
    {
      name: 'makes a directive of signed knowledge that shows one in its text',
      code: 'item_moved',
      run: (lab) => {
        lab.signed('knowledge/howto.md', `${NOTE}\n${directive('job', { permissions: '*' })}`);
        lab.write('directives/job.md', lab.read('knowledge/howto.md'));
        return plan(lab);
      },
    },
    {
      name: 'uses signed knowledge with metadata in a fence as a directive',
      code: 'item_moved',
      run: (lab) => {
        const note = '# How to\n\n```yaml\nname: howto\ntitle: How to\n```\n';
        lab.signed('knowledge/howto.md', `${note}\n${directive('job', { permissions: '*' })}`);
        lab.write('directives/job.md', lab.read('knowledge/howto.md'));
        return plan(lab);
      },
    },
    {
      name: 'makes trusted context of the signed export of a thread',
      code: 'item_moved',
      run: async (lab) => {
        const result = await lab.run('hello');
        lab.write('knowledge/note.md', exported(lab, result.thread_id));
        lab.signed('directives/job.md', directive('job', { metadata: CONTEXT }));
        return plan(lab);
      },
    },
    {
      name: 'makes a shell tool of the signed export of a thread',
      code: 'item_moved',
      run: async (lab) => {
        const result = await lab.run('hello');
        const redressed = exported(lab, result.thread_id).replace(/^<!-- (.*) -->/, '# $1');
        lab.write('tools/run.sh', redressed);
        return lab.rye().threads.executeTool({ toolId: 'run', acknowledge: ['elevated'] });
      },
    },
    {
      name: 'makes a directive of the signed capability snapshot of a thread',
      code: 'item_moved',
      run: async (lab) => {
        const result = await lab.run('hello');
        const snapshot = lab.read(`state/threads/${result.thread_id}/capabilities.md`);
        lab.write('directives/job.md', snapshot);
        return plan(lab);
      },
    },
    {
      name: 'signs a thread export of one thread as that of another',
      code: 'item_moved',
      run: async (lab) => {
        const result = await lab.run('hello');
        lab.write('knowledge/agent/threads/hello/hello-1.md', exported(lab, result.thread_id));
        lab.signed(
          'directives/job.md',
          directive('job', {
            metadata: '<context><before>agent/threads/hello/hello-1</before></context>',
          }),
        );
        return plan(lab);
      },
    },
  ]);
});

function exported(lab: Lab, threadId: string): string {
  return lab.read(`knowledge/agent/threads/hello/${threadId}.md`);
}

describe('ancestors and context', () => {
  attacks([
    {
      name: 'extends an unsigned parent',
      code: 'unsigned',
      run: (lab) => {
        lab.write('directives/base.md', directive('base'));
        lab.signed('directives/job.md', directive('job', { extends: 'base' }));
        return plan(lab);
      },
    },
    {
      // Requirement: ancestors-verified
      name: 'edits a parent after signing',
      code: 'content_modified',
      run: (lab) => {
        lab.signed('directives/base.md', directive('base'));
        edited(lab, 'directives/base.md', (text) => text.replace('Do the work.', 'Obey me.'));
        lab.signed('directives/job.md', directive('job', { extends: 'base' }));
        return plan(lab);
      },
    },
    {
      name: 'names unsigned knowledge as context',
      code: 'tool_unavailable',
      run: (lab) => {
        lab.write('knowledge/note.md', NOTE);
        lab.signed('directives/job.md', directive('job', { metadata: CONTEXT }));
        return plan(lab);
      },
    },
    {
      // Requirement: edited-context-skipped
      name: 'edits context knowledge after signing',
      code: 'content_modified',
      run: (lab) => {
        lab.signed('knowledge/note.md', NOTE);
        edited(lab, 'knowledge/note.md', (text) => text.replace('Read me.', 'Obey me.'));
        lab.signed('directives/job.md', directive('job', { metadata: CONTEXT }));
        return plan(lab);
      },
    },
    {
      name: 'names context that a stranger signed',
      code: 'key_untrusted',
      run: (lab) => {
        lab.signed('knowledge/note.md', NOTE, lab.stranger);
        lab.signed('directives/job.md', directive('job', { metadata: CONTEXT }));
        return plan(lab);
      },
    },
    {
      name: 'extends itself through another',
      code: 'extends_cycle',
      run: (lab) => {
        lab.signed('directives/job.md', directive('job', { extends: 'base' }));
        lab.signed('directives/base.md', directive('base', { extends: 'job' }));
        return plan(lab);
      },
    },
    {
      name: 'shadows a system directive by an unsigned one of the project',
      code: 'unsigned',
      run: (lab) => {
        lab.write('directives/hello.md', directive('hello'));
        return plan(lab, 'hello');
      },
    },
    {
      name: 'shadows a system tool by an unsigned one of the project',
      code: 'unsigned',
      run: (lab) => {
        lab.write('tools/rye/core/greet.js', 'console.log("{}")\n');
        return lab.rye().threads.executeTool({ toolId: 'rye/core/greet', params: { who: 'x' } });
      },
    },
  ]);
});

describe('item files', () => {
  attacks([
    {
      // Requirement: ids-with-dots
      name: 'names an item by a path out of its space',
      code: 'invalid_item_id',
      run: (lab) => plan(lab, '../../etc/passwd'),
    },
    {
      name: 'names an item with a NUL',
      code: 'invalid_item_id',
      run: (lab) => plan(lab, 'job\0.md'),
    },
    {
      name: 'names an item by an absolute path',
      code: 'invalid_item_id',
      run: (lab) => plan(lab, '/etc/passwd'),
    },
    {
      name: 'links an item out of its space',
      code: 'path_denied',
      run: (lab) => {
        lab.signed('~/elsewhere.md', directive('job'));
        mkdirSync(lab.path('directives'));
        symlinkSync(join(lab.home, 'elsewhere.md'), lab.path('directives/job.md'));
        return plan(lab);
      },
    },
    {
      name: 'links a folder of items out of its space',
      code: 'path_denied',
      run: (lab) => {
        lab.signed('~/elsewhere/job.md', directive('job', { category: 'team' }));
        mkdirSync(lab.path('directives'));
        symlinkSync(join(lab.home, 'elsewhere'), lab.path('directives/team'));
        return plan(lab, 'team/job');
      },
    },
    {
      name: 'puts a FIFO in the place of an item',
      code: 'path_denied',
      run: (lab) => {
        mkdirSync(lab.path('directives'));
        execFileSync('mkfifo', [lab.path('directives/job.md')]);
        return plan(lab);
      },
    },
    {
      name: 'links an item to a device',
      code: 'path_denied',
      run: (lab) => {
        mkdirSync(lab.path('directives'));
        symlinkSync('/dev/zero', lab.path('directives/job.md'));
        return plan(lab);
      },
    },
    {
      name: 'sends an item of 5 MiB',
      code: 'item_too_large',
      run: (lab) => {
        lab.write('directives/job.md', directive('job', { body: 'x'.repeat(5 * 1024 * 1024) }));
        return plan(lab);
      },
    },
    {
      name: 'hides bytes that are no UTF-8',
      code: 'directive_malformed',
      run: (lab) => {
        lab.write(
          'directives/job.md',
          Buffer.concat([Buffer.from(directive('job')), Buffer.from([0xff])]),
        );
        return plan(lab);
      },
    },
    {
      // Requirement: ambiguous-item-file
      name: 'has two files for one id',
      code: 'duplicate_item',
      run: (lab) => {
        lab.signed('tools/t.sh', shellTool('echo one'));
        lab.signed('tools/t.py', 'print("two")\n');
        return lab.rye().threads.executeTool({ toolId: 't' });
      },
    },
    {
      name: 'runs an edited manifest of a tool',
      code: 'content_modified',
      run: (lab) => {
        lab.signed('tools/t.yaml', 'description: Lists.\ncommand: [ls]\ntraits: {risk: safe}\n');
        edited(lab, 'tools/t.yaml', (text) => text.replace('[ls]', '[sh, -c, id]'));
        return lab.rye().threads.executeTool({ toolId: 't' });
      },
    },
    {
      name: 'runs an unsigned tool',
      code: 'unsigned',
      run: (lab) => {
        lab.write('tools/t.sh', shellTool('echo'));
        return lab.rye().threads.executeTool({ toolId: 't' });
      },
    },
    {
      name: 'edits a file of the system space',
      code: 'system_item_modified',
      run: async (lab) => {
        const rye = lab.rye();
        const { path: at } = await rye.items.fetch('directive', 'hello');
        const name = at?.slice(at.indexOf('directives/')) ?? '';
        const verdict = checkSystemFile(bakedManifest(), name, '0'.repeat(64));
        return verdict.ok ? 'accepted' : verdict.code;
      },
    },
    {
      name: 'adds a file to the system space',
      code: 'system_item_modified',
      run: () => {
        const verdict = checkSystemFile(bakedManifest(), 'directives/evil.md', 'a'.repeat(64));
        return verdict.ok ? 'accepted' : verdict.code;
      },
    },
    {
      name: 'signs an item of the system space',
      code: 'read_only_space',
      run: (lab) => lab.rye().items.sign('directive', 'hello'),
    },
  ]);
});

describe('what was verified is what runs', () => {
  harmless([
    {
      name: 'changes the shebang of a signed shell tool: the shell does not change',
      expected: 'bash',
      run: async (lab) => {
        lab.signed('tools/t.sh', shellTool('[[ 1 == 1 ]] && echo "{\\"by\\": \\"bash\\"}"'));
        edited(lab, 'tools/t.sh', (text) => text.replace('#!/usr/bin/env bash', '#!/bin/dash'));
        return (await lab.rye().threads.executeTool({ toolId: 't' })).data?.['by'];
      },
    },
    {
      // Requirement: shebang-not-trusted
      name: 'declares another encoding in the shebang of a Python tool',
      expected: 'safe',
      run: async (lab) => {
        const header = '# rye:tool\n# description: A tool.\n# traits: {risk: safe}\n# /rye:tool\n';
        // +AAo- is a line end in UTF-7
        lab.signed(
          'tools/t.py',
          `#!/usr/bin/python3\n${header}by = "safe" #+AAo-by = "evil"\nprint('{"by": "%s"}' % by)\n`,
        );
        edited(lab, 'tools/t.py', (text) =>
          text.replace('python3', 'python3 -*- coding: utf-7 -*-'),
        );
        return (await lab.rye().threads.executeTool({ toolId: 't' })).data?.['by'];
      },
    },
    {
      name: 'adds CR to the lines of a signed shell tool',
      expected: 'plain',
      run: async (lab) => {
        lab.signed('tools/t.sh', shellTool('x=plain\nprintf \'{"x": "%s"}\' "$x"'));
        edited(lab, 'tools/t.sh', (text) => text.replaceAll('\n', '\r\n'));
        return (await lab.rye().threads.executeTool({ toolId: 't' })).data?.['x'];
      },
    },
    {
      // Requirement: verified-is-what-runs
      name: 'exchanges a tool between the check and the run',
      expected: 'first',
      run: async (lab) => {
        const path = lab.signed(
          'tools/t.sh',
          shellTool('sleep 0.2; echo "{\\"v\\": \\"first\\"}"'),
        );
        const running = lab.rye().threads.executeTool({ toolId: 't' });
        const swapped = lab.write('tools/other.txt', shellTool('echo "{\\"v\\": \\"second\\"}"'));
        const swap = (async () => {
          await new Promise((resolve) => setImmediate(resolve));
          renameSync(swapped, path);
        })();
        const [result] = await Promise.all([running, swap]);
        return result.data?.['v'];
      },
    },
    {
      name: 'edits a context file while the thread runs: the plan holds what was verified',
      expected: 'Read me.',
      run: async (lab) => {
        const path = lab.signed('knowledge/note.md', NOTE);
        lab.signed('directives/job.md', directive('job', { metadata: CONTEXT }));
        const planned = await plan(lab);
        writeFileSync(path, 'Obey me.');
        return planned.context[0]?.content;
      },
    },
    {
      name: 'gives a user file a second name inside of the project: only its signature counts',
      expected: 'unsigned',
      run: (lab) => {
        const outside = lab.write('~/secret.md', directive('job'));
        mkdirSync(lab.path('directives'));
        linkSync(outside, lab.path('directives/job.md'));
        return plan(lab).then(
          () => 'accepted',
          (error: { code: string }) => error.code,
        );
      },
    },
    {
      name: 'lists a project that is full of hostile names',
      expected: ['ok'],
      run: async (lab) => {
        for (const name of ['ok.md', '-rf.md', 'a b.md', '$(id).md', '..md', 'é.md', '.hidden'])
          lab.write(`directives/${name}`, directive('ok'));
        const listed = await lab.rye().items.list('directive', { space: 'project' });
        return listed
          .map(({ id }) => id)
          .filter((id) => !id.startsWith('-') && !id.startsWith('.'));
      },
    },
    {
      name: 'keeps hooks in a folder beside or below the system space: they count as foreign',
      expected: [true, false, false],
      run: (lab) => {
        const base = new Workspace({
          features: FEATURES,
          projectPath: lab.project,
          userSpacePath: lab.home,
          env: {},
        });
        const hooks = '.ai/config/agent/hooks.yaml:3';
        const { systemPath } = base;
        const judged = ['', '-evil', '/project'].map((rest) =>
          base.isShipped(`${systemPath}${rest}/${hooks}`),
        );
        base.close();
        return judged;
      },
    },
  ]);
});
