import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage, runCli } from '../helpers/run-cli.ts';

const BUILD_MS = 300_000;
const folder = mkdtempSync(path.join(tmpdir(), 'rye-package-'));
let installed = '';

beforeAll(async () => {
  installed = await cliPackage();
  return () => {
    removeFolder(folder);
  };
}, BUILD_MS);

interface Manifest {
  readonly version: string;
  readonly scripts: Readonly<Record<string, string>>;
}
const manifest = JSON.parse(readFileSync('package.json', 'utf8')) as Manifest;

/** The source files inside the modules that a module of dist/ loads at once, without `import()`. */
function sourcesOf(module: string, seen = new Set<string>()): readonly string[] {
  if (seen.has(module)) return [];
  seen.add(module);
  const text = readFileSync(module, 'utf8');
  const own = [...text.matchAll(/^\/\/ (?:\S*\/)?((?:src|node_modules)\/\S+)$/gm)].map(
    ([, file]) => file ?? '',
  );
  const imported = [
    ...text.matchAll(/^(?:import|export|\}) .*?from "(\.[^"]+)"|^import "(\.[^"]+)"/gm),
  ];
  return [
    ...own,
    ...imported.flatMap(([, from, bare]) =>
      sourcesOf(path.join(path.dirname(module), from ?? bare ?? ''), seen),
    ),
  ];
}

describe('cold start', () => {
  it('loads the parser for --help, but no command and nothing of the app', () => {
    const sources = sourcesOf(path.join(installed, 'dist', 'cli', 'main.js'));
    const packages = sources.flatMap(
      (file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? [],
    );
    expect(new Set(packages)).toEqual(new Set(['commander', 'get-east-asian-width']));
    const loaded = sources.filter((file) =>
      /^src\/(?!kernel\/(?:core\/|app\/lazy\.ts)|features\/(?:[\w-]+\/index|all|shipped)\.ts|faces\/(?:cli\/(?!commands\/)|ui\/[\w-]+\.ts))/.test(
        file,
      ),
    );
    expect(loaded).toEqual([]);
  });

  /** The packages in the modules that a command loads at start, by the names of its chunks. */
  const packagesOf = (...names: readonly string[]): readonly string[] => {
    const chunks = path.join(installed, 'dist', 'chunks');
    const seen = new Set<string>();
    const sources = names.flatMap((wanted) => {
      const chunk = readdirSync(chunks).find((name) => name.startsWith(`${wanted}-`));
      return sourcesOf(path.join(chunks, chunk ?? `no chunk ${wanted}`), seen);
    });
    const found = sources.map(
      (file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? '',
    );
    return [...new Set(found)].filter((name) => name !== '').toSorted();
  };

  it('lists threads without anything that parses, verifies or logs', () => {
    expect(packagesOf('thread-list')).toEqual([]);
  });

  it('runs a directive without an SDK, a schema compiler or a syntax tree', () => {
    const packages = packagesOf('open-rye', 'thread-runs');
    expect(packages).toContain('canonicalize');
    for (const heavy of [
      '@anthropic-ai/sdk',
      '@modelcontextprotocol/sdk',
      'acorn',
      'ajv',
      'highlight.js',
      'js-yaml',
      'openai',
    ]) {
      expect(packages).not.toContain(heavy);
    }
  });

  it('has the terminal library for `threads open` alone, and there only once a tree is shown', () => {
    const chunks = path.join(installed, 'dist', 'chunks');
    const holders = readdirSync(chunks).filter((name) =>
      sourcesOf(path.join(chunks, name)).some((file) => file.includes('/pi-tui/')),
    );
    expect(holders.map((name) => name.replace(/-[^-]*$/, ''))).toEqual(['browse']);
  });

  it('makes a `require` only for the modules that have CommonJS in them', () => {
    const chunks = path.join(installed, 'dist', 'chunks');
    const made = readdirSync(chunks).filter((name) =>
      readFileSync(path.join(chunks, name), 'utf8').includes('ryeCreateRequire('),
    );
    expect(made.length).toBeGreaterThan(0);
    expect(made.length).toBeLessThan(readdirSync(chunks).length / 4);
  });
});

describe('bin/rye.js', () => {
  it.each(['--version', '-V'])('prints the version with %s', async (option) => {
    const { code, stdout } = await runCli([option], { cwd: folder });
    expect([code, stdout]).toEqual([0, `${manifest.version}\n`]);
  });

  it.each(['--help', '-h'])('prints with %s what the parser would', async (option) => {
    const [written, parsed] = await Promise.all([
      runCli([option], { cwd: folder }),
      runCli(['--no-color', option], { cwd: folder }),
    ]);
    expect(written).toEqual(parsed);
    expect(written.stdout).toContain('Usage: rye [options] [command]');
  });

  it('explains how to build when there is no dist/', () => {
    const unbuilt = path.join(folder, 'unbuilt');
    cpSync('bin', path.join(unbuilt, 'bin'), { recursive: true });
    cpSync('package.json', path.join(unbuilt, 'package.json'));
    const run = (...words: readonly string[]): string =>
      execFileSync(process.execPath, [path.join(unbuilt, 'bin', 'rye.js'), ...words], {
        encoding: 'utf8',
        stdio: 'pipe',
      });
    expect(() => run('doctor')).toThrow('npm run build');
    expect(() => run('--help')).toThrow('npm run build');
    expect(run('--version')).toBe(`${manifest.version}\n`);
    const help = path.join('dist', 'cli', 'help.json');
    cpSync(path.join(installed, help), path.join(unbuilt, help));
    expect(run('--help')).toContain('Usage: rye');
    expect(() => run('threads', 'list')).toThrow('npm run build');
  });
});

const viaModules = (words: readonly string[]): string => {
  const main = pathToFileURL(path.join(installed, 'dist', 'cli', 'main.js')).href;
  const start = `process.argv.splice(1, 0, 'rye'); (await import('${main}')).start();`;
  return shown([process.execPath, '--input-type=module', '-e', start, '--', ...words]);
};
const viaBin = (words: readonly string[]): string =>
  shown([process.execPath, path.join(installed, 'bin', 'rye.js'), ...words]);
const shown = (command: readonly string[]): string =>
  execFileSync('bash', ['-c', '"$0" "$@" 2>&1; echo "exit $?"', ...command], {
    encoding: 'utf8',
    cwd: folder,
    env: { PATH: process.env['PATH'], HOME: path.join(folder, '.home') },
  });

describe('what talks to a provider', () => {
  it('names no Headers of the platform, which would load its whole fetch', () => {
    const chunks = path.join(installed, 'dist', 'chunks');
    const sdk = readdirSync(chunks)
      .map((name) => readFileSync(path.join(chunks, name), 'utf8'))
      .filter((text) => text.includes('// node_modules/@anthropic-ai/sdk/internal/headers.mjs'));
    expect(sdk).toHaveLength(1);
    expect(sdk.join('')).toContain('new PlainHeaders()');
    expect(sdk.join('')).not.toMatch(/new Headers\(|instanceof Headers\b/);
  });
});

describe('the compiled program', () => {
  const code = path.join(folder, 'code');
  const alone = path.join(folder, 'alone');
  const cli = path.join(alone, 'dist', 'cli');
  const complete = (): string =>
    execFileSync(process.execPath, [path.join(alone, 'bin', 'rye.js'), 'completion', 'bash'], {
      encoding: 'utf8',
      stdio: 'pipe',
      env: { PATH: process.env['PATH'], HOME: path.join(folder, '.home'), RYE_CODE_CACHE: code },
    });

  it('is what runs, without the modules, and prints what they print', async () => {
    for (const part of ['.ai', 'bin', 'package.json']) {
      cpSync(path.join(installed, part), path.join(alone, part), { recursive: true });
    }
    cpSync(path.join(installed, 'dist', 'cli', 'program.cjs'), path.join(cli, 'program.cjs'));
    const { stdout } = await runCli(['--no-color', 'completion', 'bash'], { cwd: folder });
    expect(complete()).toBe(stdout);
  });

  it('has only characters that are one byte, as it is read', () => {
    const bytes = readFileSync(path.join(installed, 'dist', 'cli', 'program.cjs'));
    expect(bytes.findIndex((byte) => byte > 0x7f)).toBe(-1);
  });

  it('reaches what is not in the file, such as the sandbox', () => {
    expect(viaBin(['doctor'])).toBe(viaModules(['doctor']));
  });

  /** Returns the files of compiled code. */
  const kept = (): readonly string[] =>
    readdirSync(code).filter((name) => name.startsWith('program-other-'));
  const keptFile = (): string => path.join(code, kept()[0] ?? 'none');

  // Requirement: compiled-code-is-own
  it('brings nothing of V8 along, and keeps what it compiles for this user alone', () => {
    const files = readdirSync(installed, { recursive: true, encoding: 'utf8' });
    expect(files.filter((name) => name.endsWith('.cache'))).toEqual([]);
    rmSync(code, { recursive: true, force: true });
    const shownFirst = complete();
    expect(kept()).toHaveLength(1);
    expect(statSync(code).mode & 0o777).toBe(0o700);
    expect(statSync(keptFile()).mode & 0o777).toBe(0o600);
    const { ino } = statSync(keptFile());
    expect(complete()).toBe(shownFirst);
    expect(statSync(keptFile()).ino).toBe(ino);
  });

  it.each<readonly [string, (file: string) => void]>([
    ['is damaged', (file) => writeFileSync(file, readFileSync(file).fill(0, 0, 32))],
    ['is cut', (file) => writeFileSync(file, readFileSync(file).subarray(0, 5000))],
    ['is empty', (file) => writeFileSync(file, '')],
    ['is gone', (file) => rmSync(file)],
    ['can be written by others', (file) => chmodSync(file, 0o666)],
    [
      'is a link',
      (file) => {
        renameSync(file, `${file}.moved`);
        symlinkSync(`${file}.moved`, file);
      },
    ],
  ])('compiles again where what was kept %s', (_, spoil) => {
    const before = complete();
    spoil(keptFile());
    expect(complete()).toBe(before);
    const stats = lstatSync(keptFile());
    expect([stats.isFile(), stats.mode & 0o777]).toEqual([true, 0o600]);
    expect(stats.size).toBeGreaterThan(100_000);
  });

  describe('keeps what configuration means', () => {
    const home = path.join(folder, 'reader');
    const config = (): string =>
      execFileSync(process.execPath, [path.join(alone, 'bin', 'rye.js'), 'config', 'show'], {
        encoding: 'utf8',
        cwd: home,
        stdio: 'pipe',
        env: { PATH: process.env['PATH'], HOME: home, RYE_CODE_CACHE: code },
      });
    const setting = path.join(home, '.ai', 'config', 'agent', 'agent.yaml');
    const meanings = (): string =>
      path.join(code, readdirSync(code).find((name) => name.startsWith('meanings-')) ?? 'none');
    /** Turns the kept value into its opposite. */
    const forge = (): void => {
      const text = readFileSync(meanings(), 'utf8');
      writeFileSync(meanings(), text.replaceAll('"history":[2,false]', '"history":[2,true]'));
    };

    it('for this user alone, by the hash of the text', () => {
      mkdirSync(path.dirname(setting), { recursive: true });
      writeFileSync(setting, 'chat:\n  history: false # no\n');
      expect(config()).toContain('false');
      expect(statSync(meanings()).mode & 0o777).toBe(0o600);
      // what is kept is what is read, so all that follows can fail
      forge();
      expect(config()).not.toContain('false');
      writeFileSync(setting, 'chat:\n  history: false # no!\n');
      expect(config()).toContain('false');
    });

    it.each<readonly [string, (file: string) => void]>([
      ['can be written by others', (file) => chmodSync(file, 0o666)],
      ['is no JSON', (file) => writeFileSync(file, '{"config:')],
      ['is a list', (file) => writeFileSync(file, '[1]')],
      ['is empty', (file) => writeFileSync(file, '')],
      [
        'is a link',
        (file) => {
          renameSync(file, `${file}.moved`);
          symlinkSync(`${file}.moved`, file);
        },
      ],
    ])('and reads the file where what was kept %s', (_, spoil) => {
      forge();
      spoil(meanings());
      expect(config()).toContain('false');
    });
  });

  it('runs the text that is there, also if another one of the same length was compiled', () => {
    const before = complete();
    const file = path.join(cli, 'program.cjs');
    const text = readFileSync(file, 'latin1');
    writeFileSync(file, text.replaceAll('complete -', 'complete +'), 'latin1');
    expect(complete()).not.toBe(before);
    writeFileSync(file, text, 'latin1');
  });

  it('keeps nothing in a folder of others, and nothing if it is told so', () => {
    chmodSync(code, 0o777);
    const before = kept();
    for (const name of before) rmSync(path.join(code, name));
    complete();
    expect(kept()).toEqual([]);
    chmodSync(code, 0o700);
    const off = path.join(folder, 'off');
    execFileSync(process.execPath, [path.join(alone, 'bin', 'rye.js'), 'completion', 'bash'], {
      env: { PATH: process.env['PATH'], HOME: off, RYE_CODE_CACHE: 'off' },
    });
    expect(existsSync(path.join(off, '.cache'))).toBe(false);
  });
});

describe('the one file that lists threads', () => {
  it.each([
    ['threads'],
    ['threads --json'],
    ['threads list --active --status error'],
    ['threads list --parent nobody --json'],
    ['threads list --limit many'],
    ['threads list show'],
    ['threads --help'],
  ])('prints the same as the whole program for `rye %s`', (line) => {
    const words = line.split(' ');
    expect(viaBin(words)).toBe(viaModules(words));
  });
});

describe('streams', () => {
  const rye = (tail: string): string =>
    execFileSync(
      'bash',
      [
        '-c',
        `set -o pipefail; "$0" "$1" completion bash ${tail}; echo "exit $?"`,
        process.execPath,
        path.join(installed, 'bin', 'rye.js'),
      ],
      { encoding: 'utf8', cwd: folder },
    );

  it('reports that its help cannot be written', () => {
    const help = `"$0" "$1" --help 2>&1 >/dev/full; echo "exit $?"`;
    const bin = path.join(installed, 'bin', 'rye.js');
    const output = execFileSync('bash', ['-c', help, process.execPath, bin], { encoding: 'utf8' });
    expect(output).toMatch(/cannot write to standard output: ENOSPC.*\nexit 1\n$/s);
  });

  it('ends quietly when the reader goes away', () => {
    expect(rye('2>&1 >/dev/null | true')).toBe('exit 0\n');
    expect(rye('2>err.txt | head -c 1 >/dev/null')).toBe('exit 0\n');
    expect(readFileSync(path.join(folder, 'err.txt'), 'utf8')).toBe('');
  });

  it('fails when its output cannot be written', () => {
    expect(rye('2>&1 >/dev/full')).toMatch(/cannot write to standard output: ENOSPC.*\nexit 1\n$/s);
  });
});

describe('scripts', () => {
  it.each(['AGENTS.md', '.ci/run', 'docs/cli.md'])('%s names only scripts that exist', (file) => {
    const named = [...readFileSync(file, 'utf8').matchAll(/npm run ([a-z:]+)/g)];
    expect(named.map(([, script]) => script)).toEqual(
      named.map(([, script = '']) => (script in manifest.scripts ? script : 'no such script')),
    );
  });

  it('.ci/run ends with the test run, so that its summary is printed last', () => {
    expect(readFileSync('.ci/run', 'utf8').trimEnd().split('\n').at(-1)).toBe(
      'npm run test:campaigns',
    );
  });
});
