import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { runCli } from '../helpers/run-cli.ts';

const REPORT = '.ai/reports/project_report.md';

/** Files as nasty as file systems allow, at the top, in hidden, ignored and nested folders. */
const TREE: Readonly<Record<string, string | Uint8Array>> = {
  'README.md': '# Crates\n\nCounts crates. ``` and | bars.\n\n````text\nfenced\n````\n',
  '.gitignore': 'dist/\n*.log\n!keep/\n',
  '.hidden/secret.ts': 'TODO hidden\n',
  'dist/bundle.js': '// TODO from a bundle\n'.repeat(40),
  'node_modules/p/index.js': '// FIXME not ours\n',
  'src/a.ts': 'const a = 1; // TODO: one\nTODOS are no marker\n// FIXME\n',
  'src/with space.ts': 'let x;\n// TODO TODO twice in a line\n',
  'src/ünïcode "quote" `tick` |bar|.ts': 'no newline at the end TODO',
  'src/line\nbreak.py': 'x = 1\n# FIXME: a `name` | with a newline\n',
  'src/.dotted/inner.ts': 'below the top, hidden names count\n',
  'src/no-extension': 'todo in lower case is no marker\n',
  'src/Makefile.INC': 'a\nb\nc\n',
  'empty.txt': '',
  'src/dist/nested.ts': 'only the top dist is ignored\n// TODO nested\n',
  'image.bin': new Uint8Array([0, 10, 10, ...Buffer.from('TODO\n')]),
  'late.dat': Buffer.concat([
    Buffer.from('text\n'.repeat(20_000)),
    Buffer.from([0]),
    Buffer.from('x\n'),
  ]),
  'latin1.txt': Buffer.from('caf\u{e9}\nTODO latin\n', 'latin1'),
};

let project = '';
beforeAll(() => {
  project = mkdtempSync(path.join(tmpdir(), 'rye-report-'));
  for (const [name, content] of Object.entries(TREE)) {
    mkdirSync(path.dirname(path.join(project, name)), { recursive: true });
    writeFileSync(path.join(project, name), content);
  }
  // a name that is not UTF-8 cannot be told to anybody, but it is a file
  writeFileSync(Buffer.from(`${project}/src/caf\u{e9}.ts`, 'latin1'), 'lost\n');
  symlinkSync('a.ts', path.join(project, 'src/link.ts'));
  symlinkSync('/', path.join(project, 'src/root'));
  symlinkSync('nowhere', path.join(project, 'src/broken'));
});
afterAll(() => removeFolder(project));

function shell(command: string, cwd = project): string {
  const env = { PATH: process.env['PATH'], LC_ALL: 'C' };
  return execFileSync('sh', ['-c', command], { cwd, env, encoding: 'utf8' }).trim();
}

/** The files that the report claims to count, as arguments of find. */
const FIND =
  "find . -mindepth 1 \\( -path './.*' -o -path ./dist -o -name node_modules \\) -prune -o -type f";
const FIND_TEXT = `${FIND} ! -name late.dat ! -name image.bin ! -name 'caf?.ts' -print0 | xargs -0`;

interface Outputs {
  readonly report_path: string;
  readonly files: number;
  readonly lines: number;
  readonly todo_count: number;
  readonly largest: readonly {
    readonly path: string;
    readonly bytes: number;
    readonly lines: number;
  }[];
}

async function report(...args: readonly string[]): Promise<Outputs> {
  const done = await runCli(['run', 'rye/core/project_report', '--json', ...args], {
    cwd: project,
  });
  expect(done).toMatchObject({ code: 0 });
  return (JSON.parse(done.stdout) as { outputs: Outputs }).outputs;
}

describe('rye/core/project_report', () => {
  it('agrees with find, grep and wc on a tree of hostile names', async () => {
    await runCli(['init'], { cwd: project });
    const outputs = await report();
    expect(outputs.files).toBe(Number(shell(`${FIND} -printf 'x\\n' | wc -l`)));
    expect(outputs.lines).toBe(Number(shell(`${FIND_TEXT} cat | wc -l`)));
    const grep = `${FIND_TEXT} grep -hwE 'TODO|FIXME' | wc -l`;
    expect(outputs.todo_count).toBe(Number(shell(grep)));
    const sizes = shell(`${FIND} -printf '%s\\n' | sort -rn | head -10`);
    expect(outputs.largest.map(({ bytes }) => bytes)).toEqual(sizes.split('\n').map(Number));
    expect(outputs.largest[0]).toEqual({ path: 'late.dat', bytes: 100_003, lines: 0 });

    const text = readFileSync(path.join(project, outputs.report_path), 'utf8');
    const rows = [...text.matchAll(/^\| `(\.\w+|\(none\))` \| (\d+) \| (\d+) \| (\d+) \|$/gm)];
    const perExtension = Object.fromEntries(
      rows.map(([, name, files, lines]) => [name, [Number(files), Number(lines)]]),
    );
    expect(perExtension).toEqual({
      '.ts': [6, 8],
      '.md': [1, 7],
      '.inc': [1, 3],
      '.py': [1, 2],
      '.txt': [2, 2],
      '(none)': [1, 1],
      '.bin': [1, 0],
      '.dat': [1, 0],
    });
    expect(text).toContain('2 binary, 1 that cannot be read; ');
    expect(text).toContain('Skipped, because .gitignore names them: `dist/` (1 file).');
    expect(text).toContain('## Read first: `README.md`\n\n`````text\n# Crates\n');
    expect(text).toContain('| `src/a.ts:1` | `const a = 1; // TODO: one` |');
    expect(text).toContain(
      '| `src/line break.py:2` | `` # FIXME: a `name` \\| with a newline `` |',
    );
    expect(text).not.toMatch(/bundle|hidden|not ours/);
  });

  it('writes the same report again and does not count itself', async () => {
    const first = readFileSync(path.join(project, REPORT), 'utf8');
    await report();
    expect(readFileSync(path.join(project, REPORT), 'utf8')).toBe(first);
    const visible = await report('--input', 'report=report.md');
    const again = await report('--input', 'report=report.md');
    expect(again).toEqual(visible);
    rmSync(path.join(project, 'report.md'));
  });

  it('gives the same report with the built-in search as with ripgrep', async () => {
    const first = readFileSync(path.join(project, REPORT), 'utf8');
    const done = await runCli(['run', 'rye/core/project_report'], {
      cwd: project,
      env: { PATH: '/nowhere' },
    });
    expect(done.code).toBe(0);
    expect(readFileSync(path.join(project, REPORT), 'utf8')).toBe(first);
  });

  it('reports on a folder', async () => {
    const outputs = await report('--input', 'path=src');
    expect(outputs.files).toBe(
      Number(
        shell(
          'find . -mindepth 1 ! -path "./.*" -type f -printf "x\\n" | wc -l',
          path.join(project, 'src'),
        ),
      ),
    );
  });

  it.each([
    ['empty', 'there is no text file in'],
    ['missing', 'missing'],
    ['..', 'leads outside the project'],
  ])('explains why it cannot report on %s', async (folder, reason) => {
    mkdirSync(path.join(project, 'empty'), { recursive: true });
    const done = await runCli(['run', 'rye/core/project_report', '--input', `path=${folder}`], {
      cwd: project,
    });
    expect(done.code).toBe(1);
    expect(done.stderr).toContain(reason);
    expect(done.stderr).not.toMatch(/sign the directive/);
    if (folder !== 'empty') return;
    const sentence =
      'rye: there is no text file in "empty", so there is nothing to report [tool_failed]';
    expect(done.stderr.split('\n')).toContain(sentence);
    expect(done.stderr.match(/nothing to report/g)).toHaveLength(1);
  });

  it('leaves a record in which search finds words of a tool result', async () => {
    const found = await runCli(['search', 'knowledge', '"name with a newline"', '--json'], {
      cwd: project,
    });
    const { results } = JSON.parse(found.stdout) as { results: { id: string }[] };
    expect(results[0]?.id).toMatch(/^agent\/threads\/rye\/core\/project_report\//);
  });
});
