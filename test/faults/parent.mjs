// Runs a directive by the library of an installed rye, whose folder is the first argument; the processes that it starts
// load the crash points too.
import path from 'node:path';
import process from 'node:process';
import { pathToFileURL } from 'node:url';

const [folder, directiveId, threadId] = process.argv.slice(2);
const { openRye } = await import(pathToFileURL(path.join(folder, 'dist', 'index.js')).href);
const rye = openRye({
  projectPath: process.cwd(),
  userSpacePath: process.env['HOME'],
  env: process.env,
  program: [
    '--import',
    path.join(import.meta.dirname, 'crash-points.mjs'),
    path.join(folder, 'bin', 'rye.js'),
  ],
});
const { success, error } = await rye.threads.execute({ directiveId, threadId });
if (error) process.stderr.write(`${JSON.stringify(error)}\n`);
process.exitCode = success ? 0 : 1;
rye.close();
