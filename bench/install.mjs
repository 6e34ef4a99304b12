// Installs what users install: the packed package, and the versions of Node that they have.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
/** For Node 20, which has no SQLite: a user compiles it, which takes a minute. */
const SQLITE = ['better-sqlite3', 'bindings', 'file-uri-to-path'];

/** Packs the built package and unpacks it where npm would. Returns its program, and a function that removes it. */
export function install() {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-bench-package-'));
  const modules = path.join(folder, 'node_modules');
  const home = path.join(modules, 'rye-threads');
  mkdirSync(home, { recursive: true });
  const words = ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder];
  const tarball = execFileSync('npm', words, { cwd: root, encoding: 'utf8' }).trim();
  const archive = path.join(folder, tarball.split('\n').at(-1));
  execFileSync('tar', ['-xzf', archive, '-C', home, '--strip-components=1']);
  for (const name of SQLITE) {
    symlinkSync(path.join(root, 'node_modules', name), path.join(modules, name));
  }
  return {
    program: path.join(home, 'bin', 'rye.js'),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/**
 * Installs versions of Node from the registry, beside the running one. Returns name and program of each, and a function that
 * removes them; a version that cannot be had is reported and left away.
 */
export function installNodes(versions) {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-bench-nodes-'));
  const nodes = { [`Node ${major(process.versions.node)}`]: process.execPath };
  for (const version of versions) {
    const prefix = path.join(folder, version);
    const name = `node-${process.platform}-${process.arch}`;
    mkdirSync(prefix);
    writeFileSync(path.join(prefix, 'package.json'), '{}');
    try {
      const words = ['install', '--silent', '--no-audit', `${name}@${version}`];
      execFileSync('npm', words, { cwd: prefix, timeout: 120_000 });
      nodes[`Node ${version}`] = path.join(prefix, 'node_modules', name, 'bin', 'node');
    } catch (error) {
      process.stderr.write(`no Node ${version}: ${error.message.split('\n', 1)}\n`);
    }
  }
  return { nodes, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

function major(version) {
  return version.split('.', 1)[0];
}
