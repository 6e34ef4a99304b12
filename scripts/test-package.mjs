// Installs the packed rye into an empty prefix, without a compiler and without install scripts, and uses it as a newcomer
// would: `npm run test:package -- [NODE_MAJOR…]`. Each Node comes from the registry; the default is 22, 24 and 26.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const MIB = 1024 * 1024;
const MAX_MIB = 25;
const MAX_PACKAGES = 5;
const COMMANDS = [
  '--version',
  'init',
  'run hello --input who=Ada',
  'verify thread hello',
  'search knowledge Ada',
  'threads',
  'doctor',
];

const folder = mkdtempSync(path.join(tmpdir(), 'rye-install-'));
const npm = execFileSync('which', ['npm'], { encoding: 'utf8' }).trim();
const versions = process.argv.slice(2);
try {
  const tarball = pack();
  for (const version of versions.length === 0 ? ['22', '24', '26'] : versions) {
    tryOn(installNode(version), tarball);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function pack() {
  const options = { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] };
  const output = execFileSync('npm', ['pack', '--silent', '--pack-destination', folder], options);
  const file = path.join(folder, output.trim().split('\n').at(-1));
  process.stdout.write(`tarball: ${(statSync(file).size / MIB).toFixed(1)} MiB\n`);
  return file;
}

/** Installs a version of Node from the registry, from the package for this platform, where new versions appear first; returns the folder of its program. */
function installNode(version) {
  const prefix = path.join(folder, `node-${version}`);
  mkdirSync(prefix);
  writeFileSync(path.join(prefix, 'package.json'), '{}');
  const name = `node-${process.platform}-${process.arch}`;
  execFileSync('npm', ['install', '--silent', `${name}@${version}`], { cwd: prefix });
  return path.join(prefix, 'node_modules', name, 'bin');
}

function tryOn(nodeFolder, tarball) {
  const home = mkdtempSync(path.join(folder, 'home-'));
  const prefix = path.join(home, 'prefix');
  const project = path.join(home, 'project');
  mkdirSync(prefix);
  mkdirSync(project);
  writeFileSync(path.join(prefix, 'package.json'), '{}');
  // neither a compiler nor make nor Python
  const env = { PATH: nodeFolder, HOME: home, npm_config_ignore_scripts: 'true' };
  const node = path.join(nodeFolder, 'node');
  const began = performance.now();
  run(node, [npm, 'install', '--silent', '--offline', '--no-audit', tarball], { cwd: prefix, env });
  const seconds = (performance.now() - began) / 1000;
  const modules = path.join(prefix, 'node_modules');
  const packages = readdirSync(modules).filter(
    (name) => !name.startsWith('.') && name !== 'rye-threads',
  );
  const size = sizeOf(modules) / MIB;
  if (packages.length > MAX_PACKAGES) throw new Error(`installed ${packages.join(', ')}`);
  if (size > MAX_MIB) throw new Error(`installed ${size} MiB`);
  const rye = path.join(modules, 'rye-threads', 'bin', 'rye.js');
  for (const command of COMMANDS) {
    const { stderr } = run(node, [rye, ...command.split(' ')], { cwd: project, env });
    if (/warning/i.test(stderr)) throw new Error(`rye ${command} prints ${stderr}`);
  }
  const program = `const { openRye } = await import('rye-threads'); await import('rye-threads/testing');
    const rye = openRye({ projectPath: '${project}', userSpacePath: '${home}', env: {} });
    if ((await rye.threads.list()).length !== 1) throw new Error('no thread'); rye.close();`;
  run(node, ['--input-type=module', '-e', program], { cwd: prefix, env });
  const { stdout } = run(node, ['--version'], { env });
  process.stdout.write(
    `Node ${stdout.trim()}: ${seconds.toFixed(1)} s, ${size.toFixed(1)} MiB, ${packages.length} packages beside rye\n`,
  );
}

function run(program, args, options) {
  const result = spawnSync(program, args, { encoding: 'utf8', ...options });
  if (result.status === 0) return result;
  throw new Error(
    `${args.join(' ')} ended with ${result.status}\n${result.stdout}${result.stderr}`,
  );
}

function sizeOf(entry) {
  const stats = statSync(entry);
  if (!stats.isDirectory()) return stats.size;
  return readdirSync(entry).reduce((sum, name) => sum + sizeOf(path.join(entry, name)), 0);
}
