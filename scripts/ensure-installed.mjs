// Installs what package-lock.json names unless node_modules already holds it, so that the README's commands work from a
// fresh clone. Uses nothing but Node: it runs before there are dependencies.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
/** Node 20 needs it; later ones have a SQLite. It is compiled here, because its own script downloads a binary. */
const SQLITE = 'better-sqlite3';
/** The first Node whose SQLite needs no flag. */
const NODE_WITH_SQLITE = [22, 13];

function readPackages(file) {
  try {
    return JSON.parse(readFileSync(path.join(root, file), 'utf8')).packages;
  } catch {
    return undefined;
  }
}

function isInstalled() {
  const wanted = readPackages('package-lock.json');
  const present = readPackages('node_modules/.package-lock.json');
  if (wanted === undefined || present === undefined) return false;
  return Object.entries(wanted).every(
    ([name, entry]) =>
      name === '' ||
      entry.optional === true ||
      (present[name]?.version === entry.version &&
        existsSync(path.join(root, name, 'package.json'))),
  );
}

function npm(args, env = process.env) {
  const { status } = spawnSync('npm', args, {
    cwd: root,
    stdio: 'inherit',
    env,
    shell: process.platform === 'win32',
  });
  return status ?? 1;
}

function hasSqlite() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  const [wantedMajor, wantedMinor] = NODE_WITH_SQLITE;
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}

/** Headers that came with this Node, or that npm is set up with. Without them a build would download some. */
function headersOfNode() {
  if (process.env.npm_config_nodedir !== undefined) return process.env.npm_config_nodedir;
  const prefix = path.dirname(path.dirname(process.execPath));
  return existsSync(path.join(prefix, 'include', 'node', 'node.h')) ? prefix : undefined;
}

/** Compiles the SQLite package. Returns true if rye can run then. */
function buildSqlite() {
  const headers = headersOfNode();
  if (headers === undefined && hasSqlite()) return true;
  const nodedir = headers === undefined ? {} : { npm_config_nodedir: headers };
  const env = { ...process.env, npm_config_build_from_source: 'true', ...nodedir };
  if (npm(['rebuild', SQLITE], env) === 0 || hasSqlite()) return true;
  process.stderr.write(
    `rye needs Node 22.13 or later; this is ${process.versions.node}, where ${SQLITE} could not be built instead\n`,
  );
  return false;
}

/** Runs the scripts of the packages that package.json allows. */
function runScripts() {
  const { allowScripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const names = Object.keys(allowScripts).filter(
    (name) =>
      allowScripts[name] && name !== SQLITE && existsSync(path.join(root, 'node_modules', name)),
  );
  return npm(['rebuild', ...names]) === 0 && buildSqlite();
}

function install() {
  if (npm(['ci', '--ignore-scripts']) !== 0) return false;
  if (runScripts()) return true;
  // the next call installs again
  rmSync(path.join(root, 'node_modules', '.package-lock.json'), { force: true });
  return false;
}

if (!isInstalled() && !install()) process.exit(1);
