import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statfsSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { TestProject } from 'vitest/node';
import { removeFolder } from './remove-folder.ts';

// ends what hangs, and not what is only slow because the machine has other work
const TEST_MS = 300_000;
const POLL = { timeout: 60_000, interval: 50 };

/** The program is built from these. */
const SOURCES = ['.ai', 'bin', 'package-lock.json', 'package.json', 'scripts', 'src', 'startup'];
const MEMORY = '/dev/shm';
const MEMORY_PREFIX = 'rye-memory-';
/** The type that Linux gives a file system in memory. */
const TMPFS = 0x01021994;
const ENOUGH_BYTES = 4 * 2 ** 30;
/** Files that rye writes when it runs in its own clone. */
const WRITTEN = /^\.ai\/(?:state|reports|knowledge\/agent\/threads)\//;
/** Milliseconds after which a program that no test run used is removed. */
const KEPT_MS = 3_600_000;

/**
 * Gives each test run an empty folder, and the path at which `cliPackage()` keeps the program of these sources. Both lie
 * below node_modules so that the program finds its packages; workers inherit the environment.
 */
export function setup(project: TestProject): () => void {
  configure(project);
  // each project of vitest.config.ts calls this
  if (process.env['RYE_TEST_CLI_DIR'] !== undefined) return () => undefined;
  const parent = path.resolve('node_modules', '.cache');
  mkdirSync(parent, { recursive: true });
  const memory = folderInMemory();
  if (memory !== undefined) process.env['TMPDIR'] = memory;
  const directory = mkdtempSync(path.join(parent, 'rye-test-'));
  process.env['RYE_TEST_CLI_DIR'] = directory;
  process.env['RYE_TEST_PROGRAM'] = programIn(parent);
  const open = mkdtempSync(path.join(tmpdir(), 'rye-test-'));
  chmodSync(open, 0o755);
  process.env['RYE_TEST_OPEN_DIR'] = open;
  preferPython();
  return () => {
    removeFolder(directory);
    removeFolder(open);
    if (memory !== undefined) removeFolder(memory);
  };
}

/**
 * Returns a new folder in memory, where files that a test makes and removes cost no disk, or nothing where the machine has
 * no such place that is large and runs programs. A process that is killed loses no write there either; the projects of
 * vitest.config.ts whose tests need a disk name one.
 */
function folderInMemory(): string | undefined {
  try {
    const { type, bavail, bsize } = statfsSync(MEMORY);
    if (type !== TMPFS || bavail * bsize < ENOUGH_BYTES) return undefined;
    for (const name of readdirSync(MEMORY)) {
      const folder = path.join(MEMORY, name);
      if (name.startsWith(MEMORY_PREFIX) && Date.now() - statSync(folder).mtimeMs > KEPT_MS)
        removeFolder(folder);
    }
    const folder = mkdtempSync(path.join(MEMORY, MEMORY_PREFIX));
    chmodSync(folder, 0o755);
    const program = path.join(folder, 'program');
    writeFileSync(program, '#!/bin/sh\n', { mode: 0o755 });
    if (spawnSync(program).status === 0) return folder;
    removeFolder(folder);
  } catch {
    // tests run on the disk
  }
  return undefined;
}

/** Returns the path of the program that these sources make, and removes the programs of earlier sources. */
function programIn(parent: string): string {
  const hash = createHash('sha256').update(process.version);
  for (const file of SOURCES.flatMap(filesOf)) hash.update(file).update(readFileSync(file));
  const name = `rye-program-${hash.digest('hex').slice(0, 16)}`;
  const now = Date.now();
  for (const other of readdirSync(parent)) {
    const folder = path.join(parent, other);
    const isOld = other.startsWith('rye-program-') && now - statSync(folder).mtimeMs > KEPT_MS;
    if (isOld && other !== name) removeFolder(folder);
  }
  const program = path.join(parent, name);
  if (existsSync(program)) utimesSync(program, now / 1000, now / 1000);
  return program;
}

function filesOf(entry: string): readonly string[] {
  if (statSync(entry).isFile()) return [entry];
  return readdirSync(entry, { recursive: true, encoding: 'utf8' })
    .map((name) => path.join(entry, name))
    .filter((file) => !WRITTEN.test(file) && statSync(file).isFile())
    .toSorted();
}

/** Gives the tests of a project their times. Under `RYE_TWICE`, each of them is tried twice. */
function configure({ config }: TestProject): void {
  config.testTimeout = TEST_MS;
  config.hookTimeout = TEST_MS;
  config.expect.poll = POLL;
  if (process.env['RYE_TWICE'] === undefined) return;
  config.retry = 2;
  config.setupFiles.push(path.resolve(import.meta.dirname, 'try-twice.ts'));
}

/** Puts the interpreter itself first in PATH: the shim of a version manager takes several times as long to start. */
function preferPython(): void {
  const python = spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], {
    encoding: 'utf8',
  });
  if (python.status !== 0) return;
  const folder = path.dirname(python.stdout.trim());
  process.env['PATH'] = [folder, process.env['PATH']].join(path.delimiter);
}
