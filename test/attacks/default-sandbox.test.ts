import { execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { cliPackage, runCli } from '../helpers/run-cli.ts';
import { sandboxWorks } from '../helpers/sandbox.ts';
import { harmless, inLab, type Lab, shellTool } from './lab.ts';

const RESILIENCE = 'config/agent/resilience.yaml';
const SECRET = 'a text for its owner alone';

async function bash(lab: Lab, command: string, projectPath = lab.project): Promise<string> {
  const { result } = await lab.rye({ projectPath }).threads.executeTool({
    toolId: 'rye/bash',
    params: { command },
    acknowledge: ['elevated'],
  });
  return result;
}

function put(path: string, text: string, mode = 0o644): string {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text, { mode });
  return path;
}

/** Starts a server on a port of this machine, or a socket in the project, that answers with the secret. */
async function serve(socket?: string): Promise<string> {
  const server = createServer((connection) => {
    connection.on('error', () => undefined);
    connection.end(SECRET);
  });
  await new Promise<void>((resolve) => {
    if (socket === undefined) server.listen(0, '127.0.0.1', resolve);
    else server.listen(socket, resolve);
  });
  onTestFinished(() => void server.close());
  return socket ?? String((server.address() as AddressInfo).port);
}

const reach = (port: string): string => `exec 3<>/dev/tcp/127.0.0.1/${port} && cat <&3`;

/** Processes of this machine whose command line has the text. */
function processesWith(text: string): readonly string[] {
  return readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(text);
    } catch {
      return false;
    }
  });
}

// Requirement: sandbox-by-default
describe.runIf(await sandboxWorks())('without any setting, a command', () => {
  harmless([
    {
      name: 'reads a key of the home',
      expected: false,
      run: async (lab) => {
        const key = put(join(lab.home, '.ssh/id'), SECRET);
        return (await bash(lab, `cat ${key} ~/.ssh/id`)).includes(SECRET);
      },
    },
    {
      name: 'reads the signing key',
      expected: false,
      run: async (lab) =>
        (await bash(lab, `cat ${lab.home}/.ai/config/keys/signing/*`)).includes('PRIVATE KEY'),
    },
    {
      name: 'reads another file of the home, and the passwords of this machine',
      expected: [false, false],
      run: async (lab) => {
        const file = put(join(lab.home, 'letters/draft.txt'), SECRET);
        const shown = await bash(lab, `cat ${file}; cat /etc/shadow`);
        return [shown.includes(SECRET), /^root:/m.test(shown)];
      },
    },
    {
      name: 'writes outside of the project',
      expected: [[], true],
      run: async (lab) => {
        const places = [lab.home, dirname(lab.project), '/tmp', '/var/tmp'].map((folder) =>
          join(folder, `rye-escape-${process.pid}`),
        );
        const shown = await bash(lab, places.map((path) => `echo x > ${path}`).join('; '));
        return [
          places.filter((path) => existsSync(path)),
          shown.includes("rye's sandbox lets a command write only the project"),
        ];
      },
    },
    {
      name: 'writes what rye obeys',
      expected: [false, false],
      run: async (lab) => {
        await bash(lab, 'echo x > .ai/evil.md; mv .ai b; mkdir .ai; echo x > .ai/evil.md');
        return [existsSync(lab.path('evil.md')), existsSync(join(lab.project, 'b'))];
      },
    },
    {
      name: 'reads the environment of rye and of other programs',
      expected: false,
      run: async (lab) => {
        const other = spawn('sleep', ['60'], { env: { SOME_KEY: SECRET }, stdio: 'ignore' });
        onTestFinished(() => void other.kill('SIGKILL'));
        const all = `cat /proc/$PPID/environ /proc/${other.pid}/environ /proc/[0-9]*/environ`;
        const shown = await bash(lab, `${all} | tr '\\0' '\\n'`);
        return shown.includes(SECRET) || shown.includes('VITEST');
      },
    },
    {
      name: 'ends another program',
      expected: null,
      run: async (lab) => {
        const other = spawn('sleep', ['60'], { stdio: 'ignore' });
        onTestFinished(() => void other.kill('SIGKILL'));
        await bash(lab, `kill -9 ${other.pid}; true`);
        return other.signalCode;
      },
    },
    {
      name: 'leaves a process that cleared its environment',
      expected: [],
      run: async (lab) => {
        const time = `300.${process.pid}`;
        await bash(lab, `(env -i setsid sh -c 'sleep ${time} & sleep ${time}' &) ; sleep 0.1`);
        return processesWith(time);
      },
    },
    {
      name: 'sets the program that the kernel starts for a crash, or mounts something',
      expected: false,
      run: async (lab) => {
        const file = '/proc/sys/vm/swappiness';
        const mount = 'unshare -Urm mount -t tmpfs none .';
        const shown = await bash(
          lab,
          `cat ${file} > v; cat v > ${file} && echo SET; ${mount} && echo SET`,
        );
        return /^SET$/m.test(shown);
      },
    },
    {
      name: 'calls a program of this machine through its socket',
      expected: false,
      run: async (lab) => {
        const socket = await serve(join(lab.project, 'a.sock'));
        const call = `require('net').connect('${socket}').on('data', (d) => console.log(String(d)))`;
        return (await bash(lab, `'${process.execPath}' -e "${call}"`)).includes(SECRET);
      },
    },
    {
      name: 'is a tool that declares no network, and calls a server',
      expected: false,
      run: async (lab) => {
        const port = await serve();
        const header = 'description: A tool.\ntraits: {risk: safe, network: false}';
        lab.signed('tools/t.sh', shellTool(reach(port), header));
        return (await lab.rye().threads.executeTool({ toolId: 't' })).result.includes(SECRET);
      },
    },
    {
      name: 'is a script of an item, and reads the home',
      expected: false,
      run: async (lab) => {
        const key = put(join(lab.home, '.ssh/id'), SECRET);
        lab.signed('tools/t.sh', shellTool(`cat ${key}`));
        return (await lab.rye().threads.executeTool({ toolId: 't' })).result.includes(SECRET);
      },
    },
    {
      name: 'puts its own git in place, whose hooks a person would run',
      expected: [false, false],
      run: async (lab) => {
        mkdirSync(join(lab.project, '.git'));
        const made = 'mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo x > .git/config';
        await bash(lab, `mv .git g; ${made}; rm -r .git; ${made}`);
        return [
          existsSync(join(lab.project, '.git/hooks/pre-commit')),
          existsSync(join(lab.project, 'g')),
        ];
      },
    },
    {
      name: 'puts a trap in the place of a link',
      expected: [false, true],
      run: async (lab) => {
        put(join(lab.project, 'editor/settings.json'), '{}');
        symlinkSync('editor', join(lab.project, '.vscode'));
        const shown = await bash(lab, 'rm .vscode; mkdir .vscode; echo x > .vscode/tasks.json');
        return [
          existsSync(join(lab.project, '.vscode/tasks.json')),
          shown.includes('rye moved ".vscode" to .ai/state/held'),
        ];
      },
    },
    {
      name: 'opens a folder of the home to the next by a link among programs and known names',
      expected: false,
      run: async (lab) => {
        const folder = dirname(put(join(lab.home, 'letters/draft.txt'), SECRET));
        const programs = join(lab.project, 'node_modules/.bin');
        mkdirSync(programs, { recursive: true });
        lab.env['PATH'] = `${programs}:${lab.env['PATH']}`;
        await bash(lab, `rm -r node_modules/.bin; ln -s ${folder} node_modules/.bin`);
        symlinkSync(folder, join(lab.project, '.idea'));
        return (await bash(lab, `cat ${folder}/* .idea/* node_modules/.bin/*`)).includes(SECRET);
      },
    },
    {
      name: 'names a folder of the home as its repository',
      expected: false,
      run: async (lab) => {
        const letters = join(lab.home, 'letters');
        put(join(letters, 'draft.txt'), SECRET);
        const project = join(lab.home, 'project');
        put(join(project, '.git'), `gitdir: ${letters}\n`);
        return (await bash(lab, `cat ${letters}/draft.txt`, project)).includes(SECRET);
      },
    },
    {
      name: 'brings its own bwrap on PATH',
      expected: [true, false],
      run: async (lab) => {
        const real = join(lab.project, 'real');
        const fake = `#!/bin/sh\ntouch ${join(lab.home, 'escaped')}\n`;
        chmodSync(put(join(real, 'bwrap'), fake), 0o755);
        symlinkSync(real, join(lab.home, 'bin'));
        lab.env['PATH'] = `${real}:${join(lab.home, 'bin')}:${lab.env['PATH']}`;
        return [
          (await bash(lab, 'echo confined')).includes('confined'),
          existsSync(join(lab.home, 'escaped')),
        ];
      },
    },
  ]);

  it('may use the project, a temporary folder, git and the network', async () => {
    await inLab(async (lab) => {
      put(join(lab.home, '.gitconfig'), '[user]\n\tname = Ada\n\temail = ada@example.com\n');
      const port = await serve();
      const shown = await bash(
        lab,
        `echo hi > made.txt; echo there > "$TMPDIR/t"; cat made.txt "$TMPDIR/t"; git config user.name; ${reach(port)}`,
      );
      for (const part of ['hi\nthere', 'Ada', SECRET, 'exit 0']) expect(shown).toContain(part);
      expect(readFileSync(join(lab.project, 'made.txt'), 'utf8')).toBe('hi\n');
    });
  });

  it('that starts rye is told why it cannot run a thread', async () => {
    await inLab(async (lab) => {
      const program = join(await cliPackage(), 'bin', 'rye.js');
      const inside = await bash(lab, `${process.execPath} ${program} run hello`);
      expect(inside).toContain('A tool started this rye in the sandbox');
      expect(inside).toContain('rye_execute');
    });
  });

  it('reads the repository of a worktree in a home', async () => {
    await inLab(async (lab) => {
      const main = join(lab.home, 'main');
      const projectPath = join(lab.home, 'tree');
      const git = (...args: readonly string[]): void => {
        const author = ['-c', 'user.name=t', '-c', 'user.email=t@example.com'];
        execFileSync('git', ['-C', main, ...author, ...args]);
      };
      mkdirSync(main);
      git('init', '-q');
      git('commit', '-q', '--allow-empty', '-m', 'first');
      git('worktree', 'add', '-q', projectPath);
      put(join(main, 'letter.txt'), SECRET);
      const shown = await bash(lab, `git log --oneline; cat ${main}/letter.txt`, projectPath);
      expect(shown).toContain(' first\n');
      expect(shown).not.toContain(SECRET);
    });
  });

  it.runIf(existsSync('/dev/shm'))('works in a project in memory', async () => {
    await inLab(async (lab) => {
      const project = put(join('/dev/shm', `rye-${process.pid}`, '.ai/x'), '');
      const projectPath = dirname(dirname(project));
      onTestFinished(() => rmSync(projectPath, { recursive: true }));
      const shown = await bash(lab, 'pwd; echo hi > a; echo x > .ai/b', projectPath);
      expect(shown).toContain(`${projectPath}\n`);
      expect(readFileSync(join(projectPath, 'a'), 'utf8')).toBe('hi\n');
      expect(readdirSync(join(projectPath, '.ai'))).not.toContain('b');
    });
  });

  it.each([
    [
      'a signed line of the project',
      (lab: Lab) => lab.signed(RESILIENCE, 'tools: {sandbox: off}\n'),
    ],
    [
      'your own settings',
      (lab: Lab) => lab.write(`~/.ai/${RESILIENCE}`, 'tools: {sandbox: off}\n'),
    ],
  ])('%s turns it off', async (_, configure) => {
    await inLab(async (lab) => {
      const letter = put(join(lab.home, 'letters/draft.txt'), SECRET);
      configure(lab);
      expect(await bash(lab, `cat ${letter}`)).toContain(SECRET);
      expect(lab.notices.join()).not.toContain('sandbox');
    });
  });

  it('an option of the command line turns it off', async () => {
    await inLab(async (lab) => {
      const letter = put(join(lab.home, 'letters/draft.txt'), SECRET);
      const call = ['execute', 'tool', 'rye/bash', '--param', `command=cat ${letter}`];
      const options = { cwd: lab.project, env: lab.env };
      const words = [...call, '--acknowledge', 'elevated'];
      const confined = await runCli(words, options);
      expect(confined.stdout).not.toContain(SECRET);
      const free = await runCli(['-c', 'resilience.tools.sandbox=off', ...words], options);
      expect(free.stdout, free.stderr).toContain(SECRET);
    });
  });

  it('an unsigned line does not turn it off', async () => {
    await inLab(async (lab) => {
      const letter = put(join(lab.home, 'letters/draft.txt'), SECRET);
      lab.write(RESILIENCE, 'tools: {sandbox: off}\n');
      expect(await bash(lab, `cat ${letter}; true`)).not.toContain(SECRET);
    });
  });
});

it.runIf(process.platform === 'linux')(
  'says once what is missing where no command can be confined, and how to turn it off',
  async () => {
    await inLab(async (lab) => {
      lab.env['PATH'] = lab.home;
      const rye = lab.rye();
      for (const word of ['one', 'two']) {
        const params = { command: `echo ${word}` };
        const call = { toolId: 'rye/bash', params, acknowledge: ['elevated'] as const };
        expect((await rye.threads.executeTool(call)).result).toContain(word);
      }
      expect(lab.notices).toEqual([
        'commands run without a sandbox: bubblewrap (bwrap) is not installed. On Linux install bubblewrap and allow unprivileged user namespaces (tools.allow_domains needs socat and ripgrep too). To run commands with your permissions and without this line, set tools.sandbox: off in .ai/config/agent/resilience.yaml and sign it: rye sign config agent/resilience',
      ]);
    });
  },
);
