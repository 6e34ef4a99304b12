// Measures the gain of each start-up trick: builds rye once with every trick and once without each one, runs the same
// command lines in turn, and prints a Markdown table for README.md. `node startup/measure.mjs [rounds] [trick…]`.
// Ratios of processor time count; wall time on a shared machine measures its neighbors.
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { measureProcess, median, openWorkspace, startServer } from '../bench/harness.mjs';
import { bundle } from '../scripts/build.mjs';
import { PLAIN_HEADERS, SDK_MODULES } from './plugins.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const DIRECTIVE = `\`\`\`xml
<directive name="turn" version="1.0.0">
<metadata><description>One turn.</description><category></category><author>bench</author>
<limits turns="1" spend="1"/></metadata>
</directive>
\`\`\`

Answer in one word.
`;

/** Replaces the text of the modules whose path matches. */
function replace(filter, contents) {
  return {
    name: `replace-${String(filter)}`,
    setup: (build) => {
      build.onLoad({ filter }, () => ({ contents, loader: 'js' }));
    },
  };
}

/** Resolves the modules that match as esbuild would without the plugins of this folder. */
function original(filter, result) {
  return {
    name: `original-${String(filter)}`,
    setup: (build) => {
      build.onResolve({ filter }, () => result);
    },
  };
}

const originalSdk = {
  name: 'original-sdk',
  setup: (build) => {
    build.onLoad({ filter: SDK_MODULES }, async ({ path: file }) => ({
      contents: await (await import('node:fs/promises')).readFile(file, 'utf8'),
    }));
  },
};

/** The SDK with the platform's web streams, but without its headers. */
const withStreams = {
  name: 'with-streams',
  setup: (build) => {
    build.onLoad({ filter: SDK_MODULES }, async ({ path: file }) => {
      const text = await (await import('node:fs/promises')).readFile(file, 'utf8');
      return { contents: /\bHeaders\b/.test(text) ? `${PLAIN_HEADERS}${text}` : text };
    });
  },
};

const jsYaml = () =>
  createRequire(createRequire(import.meta.url).resolve('gray-matter')).resolve('js-yaml');

const PLATFORM_FETCH = `export const httpFetch = (address, init) => fetch(address, init);
export const bodyOf = ({ body }) => body && Object.assign(body, { letGo() {} });
export const textOf = async (body) => {
  let text = '';
  for await (const chunk of body) text += Buffer.from(chunk).toString();
  return text;
};
export const hasNetworkVariables = () => false;
export const send = () => { throw new Error('the environment names no network'); };
export const fieldsOf = () => [];
export class PlainHeaders {}
export class Stop {}`;

/** The tricks: what to build without them, and the command lines that they speed up. */
const TRICKS = {
  'kept code (program.cjs)': [{ without: ['program'] }, ['one turn', 'run hello']],
  'help.json': [{ without: ['help'] }, ['--help']],
  'http-fetch and PlainHeaders': [
    {
      plugins: [originalSdk, replace(/kernel[\\/]startup[\\/]http-fetch\.ts$/, PLATFORM_FETCH)],
    },
    ['one turn'],
  ],
  'PlainHeaders in the SDK': [{ plugins: [originalSdk] }, ['one turn']],
  'plain-schema': [
    {
      plugins: [
        replace(
          /kernel[\\/]startup[\\/]plain-schema\.ts$/,
          'export const readPlainSchema = () => undefined;',
        ),
      ],
    },
    ['one turn', 'run hello'],
  ],
  'meanings of shipped files': [
    { define: { __RYE_SYSTEM_MEANINGS__: 'undefined' } },
    ['one turn', 'run hello'],
  ],
  'packages on first use': [{ without: ['lazy packages'] }, ['one turn', 'run hello']],
  'no web streams': [{ plugins: [withStreams] }, ['one turn']],
  'stub of js-yaml': [
    { plugins: [original(/^js-yaml$/, { path: jsYaml() })] },
    ['one turn', 'run hello'],
  ],
};

/** Builds a complete installation in the folder; returns its bin/rye.js. */
async function install(folder, changes) {
  mkdirSync(folder, { recursive: true });
  for (const part of ['.ai', 'bin', 'package.json']) {
    cpSync(path.join(root, part), path.join(folder, part), { recursive: true });
  }
  symlinkSync(path.join(root, 'node_modules'), path.join(folder, 'node_modules'));
  await bundle(path.join(folder, 'dist'), changes);
  return path.join(folder, 'bin', 'rye.js');
}

const [rounds = '11', ...names] = process.argv.slice(2);
const selected = Object.entries(TRICKS).filter(
  ([name]) => names.length === 0 || names.some((part) => name.includes(part)),
);
const folder = mkdtempSync(path.join(tmpdir(), 'rye-startup-'));
const server = await startServer('./wire.mjs');
let workspace;
try {
  const every = await install(path.join(folder, 'every'), {});
  workspace = openWorkspace(every);
  const { env: own, project, rye } = workspace;
  mkdirSync(path.join(project, '.ai', 'directives'), { recursive: true });
  writeFileSync(path.join(project, '.ai', 'directives', 'turn.md'), DIRECTIVE);
  rye('sign', 'directive', 'turn');
  const env = { ...own, ANTHROPIC_API_KEY: 'none', ANTHROPIC_BASE_URL: server.url };
  const COMMANDS = {
    '--help': ['--help'],
    'run hello': ['run', 'hello', '-q'],
    'one turn': ['run', 'turn', '-q'],
  };
  // without a key, hello runs under the literal provider
  const measure = (...args) =>
    measureProcess(args, { cwd: project, env: args.includes('hello') ? own : env });
  process.stdout.write(
    '| trick | command | with, × node | without, × node | gain, CPU | gain, wall |\n| --- | --- | --: | --: | --: | --: |\n',
  );
  for (const [at, [name, [changes, commands]]] of selected.entries()) {
    const bin = await install(path.join(folder, `without-${at}`), changes);
    for (const command of commands) {
      const words = COMMANDS[command];
      // the first run of each warms the disk cache
      measure(every, ...words);
      measure(bin, ...words);
      const samples = [];
      for (let round = 0; round < Number(rounds); round += 1) {
        samples.push({
          node: measure('-e', '0'),
          kept: measure(every, ...words),
          removed: measure(bin, ...words),
        });
      }
      const times = (key) => median(samples.map((sample) => sample[key].cpu / sample.node.cpu));
      const gain = (clock) =>
        `${(100 * (1 - median(samples.map(({ kept, removed }) => kept[clock] / removed[clock])))).toFixed(1)} %`;
      const cells = [name, command, times('kept').toFixed(2), times('removed').toFixed(2)];
      process.stdout.write(`| ${[...cells, gain('cpu'), gain('wall')].join(' | ')} |\n`);
    }
    rmSync(path.dirname(path.dirname(bin)), { recursive: true });
  }
} finally {
  server.close();
  workspace?.close();
  rmSync(folder, { recursive: true, force: true });
}
