import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { attacks, harmless, type Lab } from './lab.ts';

const SECRET = 'the secret of the user';

/** Runs one built-in tool as a person; a refusal that comes as a result is thrown with its code. */
async function tool(lab: Lab, id: string, params: Record<string, unknown>): Promise<string> {
  const { success, data, result } = await lab
    .rye()
    .threads.executeTool({ toolId: `rye/file-system/${id}`, params: params as never });
  if (success) return result;
  const code = data?.['code'];
  throw new RyeError((typeof code === 'string' ? code : 'internal') as never, result);
}

const reads = (path: string, setUp?: (lab: Lab) => void) => async (lab: Lab) => {
  writeFileSync(join(lab.home, 'secret.txt'), SECRET);
  setUp?.(lab);
  const shown = await tool(lab, 'read', { path });
  return shown.includes(SECRET) ? 'leaked' : shown;
};

const writes = (path: string, setUp?: (lab: Lab) => void) => async (lab: Lab) => {
  setUp?.(lab);
  return await tool(lab, 'write', { path, content: 'x' });
};

/** A process that exchanges `folder` for a link to `outside` and back, as fast as it can. */
function startSwapper(project: string, outside: string): { end(): Promise<void> } {
  const script = `const { renameSync, symlinkSync, rmSync } = require('node:fs');
for (;;) { renameSync('folder', 'aside'); symlinkSync(${JSON.stringify(outside)}, 'folder');
rmSync('folder'); renameSync('aside', 'folder'); }`;
  const child = spawn(process.execPath, ['-e', script], { cwd: project, stdio: 'ignore' });
  const ended = once(child, 'exit');
  return {
    async end() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

describe('paths of file tools', () => {
  attacks([
    {
      name: 'reads by .. out of the project',
      code: 'path_denied',
      run: reads('../home/secret.txt'),
    },
    {
      name: 'reads by .. hidden in the middle',
      code: 'path_denied',
      run: reads('a/../../home/secret.txt'),
    },
    { name: 'reads an absolute path', code: 'path_denied', run: reads('/etc/passwd') },
    {
      name: 'reads the memory of the program',
      code: 'path_denied',
      run: reads('/proc/self/environ'),
    },
    {
      name: 'reads a path with a NUL',
      code: 'path_denied',
      run: reads('a\0../../home/secret.txt'),
    },
    { name: 'reads an empty path', code: 'path_denied', run: reads('') },
    {
      name: 'reads through a link to a file',
      code: 'path_denied',
      run: reads('link', (lab) =>
        symlinkSync(join(lab.home, 'secret.txt'), join(lab.project, 'link')),
      ),
    },
    {
      name: 'reads through a link to a folder',
      code: 'path_denied',
      run: reads('folder/secret.txt', (lab) => symlinkSync(lab.home, join(lab.project, 'folder'))),
    },
    {
      name: 'reads through a chain of links',
      code: 'path_denied',
      run: reads('one', (lab) => {
        symlinkSync('two', join(lab.project, 'one'));
        symlinkSync('../home/secret.txt', join(lab.project, 'two'));
      }),
    },
    {
      name: 'reads through links in a loop',
      code: 'path_denied',
      run: reads('one', (lab) => {
        symlinkSync('two', join(lab.project, 'one'));
        symlinkSync('one', join(lab.project, 'two'));
      }),
    },
    {
      name: 'reads a FIFO',
      code: 'path_denied',
      run: reads('pipe', (lab) => execFileSync('mkfifo', [join(lab.project, 'pipe')])),
    },
    {
      name: 'reads a device through a link',
      code: 'path_denied',
      run: reads('zero', (lab) => symlinkSync('/dev/zero', join(lab.project, 'zero'))),
    },
    {
      name: "reads rye's state",
      code: 'path_denied',
      run: reads('.ai/state/threads/registry.db', (lab) =>
        lab.write('state/threads/registry.db', 'x'),
      ),
    },
    {
      name: "reads rye's state in another letter case",
      code: 'path_denied',
      run: reads('.AI/State/x', (lab) => {
        mkdirSync(join(lab.project, '.AI/State'), { recursive: true });
        writeFileSync(join(lab.project, '.AI/State/x'), 'x');
      }),
    },
    {
      name: 'reads keys that the project carries',
      code: 'path_denied',
      run: reads('.ai/config/keys/signing/private_key.pem', (lab) =>
        lab.write('config/keys/signing/private_key.pem', 'x'),
      ),
    },
    {
      name: "reads the keys in rye's environment file",
      code: 'path_denied',
      run: reads('.ai/.env', (lab) => lab.write('.env', 'OTHER=value')),
    },
    // Requirement: no-git-traps
    { name: 'writes a program for git', code: 'path_denied', run: writes('.git/hooks/pre-commit') },
    { name: 'writes the settings of git', code: 'path_denied', run: writes('.git/config') },
    {
      name: 'writes the settings of git in a folder below',
      code: 'path_denied',
      run: writes('sub/.GIT/config'),
    },
    {
      name: 'points the folder of git elsewhere',
      code: 'path_denied',
      run: writes('.git'),
    },
    {
      name: 'writes by .. out of the project',
      code: 'path_denied',
      run: writes('../home/.bashrc'),
    },
    {
      name: "writes into rye's state",
      code: 'path_denied',
      run: writes('.ai/state/threads/x/thread.json'),
    },
    {
      name: 'writes a key to trust',
      code: 'path_denied',
      run: writes('.ai/config/keys/trusted/a.toml'),
    },
    {
      name: 'writes through a link to a file outside',
      code: 'path_denied',
      run: writes('link', (lab) =>
        symlinkSync(join(lab.home, 'new.txt'), join(lab.project, 'link')),
      ),
    },
    {
      name: 'writes a new file through a link to a folder outside',
      code: 'path_denied',
      run: writes('folder/new.txt', (lab) => symlinkSync(lab.home, join(lab.project, 'folder'))),
    },
    {
      name: 'lists a folder outside',
      code: 'path_denied',
      run: (lab) => tool(lab, 'ls', { path: '..' }),
    },
    {
      name: 'searches a folder outside',
      code: 'path_denied',
      run: (lab) => tool(lab, 'grep', { pattern: 'x', path: '/etc' }),
    },
    {
      name: 'globs outside',
      code: 'path_denied',
      run: (lab) => tool(lab, 'glob', { pattern: '*', path: '../home' }),
    },
    {
      name: 'edits a file outside',
      code: 'path_denied',
      run: (lab) => tool(lab, 'edit', { path: '../home/x', old_string: 'a', new_string: 'b' }),
    },
  ]);

  harmless([
    {
      name: 'writes to a hard link of a file outside: that file stays as it is',
      expected: ['original', 'x'],
      run: async (lab) => {
        const outside = join(lab.home, 'outside.txt');
        writeFileSync(outside, 'original');
        linkSync(outside, join(lab.project, 'inside.txt'));
        await tool(lab, 'write', { path: 'inside.txt', content: 'x' });
        return [
          readFileSync(outside, 'utf8'),
          readFileSync(join(lab.project, 'inside.txt'), 'utf8'),
        ];
      },
    },
    {
      // Requirement: reads-stay-in-project
      name: 'exchanges a folder for a link while files are read: nothing from outside is shown',
      expected: 0,
      run: async (lab) => {
        writeFileSync(join(lab.home, 'data.txt'), SECRET);
        const inside = join(lab.project, 'folder');
        const aside = join(lab.project, 'aside');
        mkdirSync(inside);
        writeFileSync(join(inside, 'data.txt'), 'public');
        let leaked = 0;
        for (let round = 0; round < 40; round += 1) {
          const reading = tool(lab, 'read', { path: 'folder/data.txt' }).catch(() => 'refused');
          renameSync(inside, aside);
          symlinkSync(lab.home, inside);
          await new Promise((resolve) => setImmediate(resolve));
          rmSync(inside);
          renameSync(aside, inside);
          if ((await reading).includes(SECRET)) leaked += 1;
        }
        return leaked;
      },
    },
    {
      // Requirement: writes-stay-in-project
      name: 'exchanges a folder for a link while files are written: nothing is written outside',
      expected: [],
      run: async (lab) => {
        const outside = join(lab.home, 'outside');
        mkdirSync(outside);
        mkdirSync(join(lab.project, 'folder'));
        const swapper = startSwapper(lab.project, outside);
        try {
          for (let round = 0; round < 150; round += 1) {
            const path = `folder/f${round}/x.txt`;
            await tool(lab, 'write', { path, content: 'x' }).catch(() => undefined);
          }
        } finally {
          await swapper.end();
        }
        return readdirSync(outside);
      },
    },
    {
      name: 'searches the whole project: state and keys are excluded',
      expected: false,
      run: async (lab) => {
        lab.write('state/threads/x/transcript.jsonl', 'needle in state');
        lab.write('config/keys/trusted/x.toml', 'needle in keys');
        writeFileSync(join(lab.project, 'a.txt'), 'needle');
        const found = await tool(lab, 'grep', {
          pattern: 'needle',
          path: '.',
          output_mode: 'content',
        });
        return found.includes('needle in');
      },
    },
  ]);
});

describe("where rye's own files go", () => {
  attacks([
    {
      name: 'links the state folder out of the project',
      code: 'path_denied',
      run: (lab) => {
        symlinkSync(lab.home, lab.path('state'));
        return lab.run('hello');
      },
    },
    {
      name: 'links the threads folder out of the project',
      code: 'path_denied',
      run: (lab) => {
        mkdirSync(lab.path('state'));
        symlinkSync(lab.home, lab.path('state/threads'));
        return lab.run('hello');
      },
    },
    {
      name: 'links the folder of exports out of the project',
      code: 'path_denied',
      run: (lab) => {
        mkdirSync(lab.path('knowledge'));
        symlinkSync(lab.home, lab.path('knowledge/agent'));
        return lab.run('hello');
      },
    },
  ]);

  harmless([
    {
      // Requirement: no-write-through-links
      name: 'plants a log as a link in the folder of a thread to come',
      expected: 'mine',
      run: async (lab) => {
        const target = join(lab.home, 'mine.txt');
        writeFileSync(target, 'mine');
        mkdirSync(lab.path('state/threads/one'), { recursive: true });
        for (const name of ['transcript.jsonl', 'thread.json', 'capabilities.md', 'plan.json'])
          symlinkSync(target, lab.path(`state/threads/one/${name}`));
        await lab.run('hello', { threadId: 'one' }).catch(() => undefined);
        return readFileSync(target, 'utf8');
      },
    },
    {
      name: 'plants only the log as a link, to an empty file',
      expected: '',
      run: async (lab) => {
        const target = join(lab.home, 'empty.txt');
        writeFileSync(target, '');
        mkdirSync(lab.path('state/threads/one'), { recursive: true });
        symlinkSync(target, lab.path('state/threads/one/transcript.jsonl'));
        await lab.run('hello', { threadId: 'one' }).catch(() => undefined);
        return readFileSync(target, 'utf8');
      },
    },
    {
      name: 'links the folder of a thread to come out of the project',
      expected: [],
      run: async (lab) => {
        const target = join(lab.home, 'empty');
        mkdirSync(target);
        mkdirSync(lab.path('state/threads'), { recursive: true });
        symlinkSync(target, lab.path('state/threads/one'));
        await lab.run('hello', { threadId: 'one' }).catch(() => undefined);
        return readdirSync(target);
      },
    },
    {
      name: 'brings a registry of threads that is no database: nothing of it is obeyed',
      expected: true,
      run: async (lab) => {
        lab.write('state/threads/registry.db', 'this is not a database');
        return await lab.run('hello').then(
          () => false,
          (error: RyeError) => error.code === 'storage_failed' && existsSync(lab.path('state')),
        );
      },
    },
  ]);
});
