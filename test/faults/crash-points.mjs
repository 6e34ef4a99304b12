// Loaded into a rye process with --import: names every durable step, and kills the process after the chosen one, or copies
// what is on the disk after each.
import { execFileSync } from 'node:child_process';
import { appendFileSync, readFileSync } from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import process from 'node:process';

const require = createRequire(import.meta.url);
const fs = require('node:fs');
const traceFile = process.env['RYE_TEST_TRACE'];
/** The process of a family that dies, after which step and occurrence, and if the others die with it. */
const kill = JSON.parse(process.env['RYE_TEST_KILL'] ?? '{}');
const pidsFile = process.env['RYE_TEST_PIDS'];
/** `from` is copied to `to/N` after step N: each one, or the first that begins with each of `names`. */
const copies = JSON.parse(process.env['RYE_TEST_COPIES'] ?? 'null');
let steps = 0;
const role = process.argv.includes('__run-thread') ? 'child' : 'parent';
if (pidsFile !== undefined) appendFileSync(pidsFile, `${role} ${process.pid}\n`);
let passed = 0;

/** A durable step is done. */
function step(name) {
  if (traceFile !== undefined) appendFileSync(`${traceFile}${suffix()}`, `${name}\n`);
  steps += 1;
  if (copies !== null && isCopied(name))
    // by another process: one that closes a database's file loses its locks
    execFileSync('cp', ['-a', copies.from, `${copies.to}/${steps}`]);
  if (role === kill.role && isChosen(name)) passed += 1;
  if (kill.nth === undefined || passed < kill.nth) return;
  if (pidsFile !== undefined) appendFileSync(pidsFile, `dead ${process.pid}\n`);
  if (kill.all) killOthers();
  process.kill(process.pid, 'SIGKILL');
}

/** A step is chosen by its name, or by the beginning of it. */
function isChosen(name) {
  return kill.begins === undefined ? name === kill.step : name.startsWith(kill.begins);
}

function isCopied(name) {
  const { names } = copies;
  if (names === undefined) return true;
  const at = names.findIndex((one) => name.startsWith(one));
  if (at !== -1) names.splice(at, 1);
  return at !== -1;
}

function suffix() {
  return pidsFile === undefined ? '' : `.${role}`;
}

function killOthers() {
  for (const line of readFileSync(pidsFile, 'utf8').trimEnd().split('\n')) {
    const pid = Number(line.split(' ')[1]);
    try {
      if (pid !== process.pid) process.kill(pid, 'SIGKILL');
    } catch {
      // it has ended
    }
  }
}

function logEvents(bytes) {
  const text = Buffer.isBuffer(bytes) ? bytes.toString('utf8') : String(bytes);
  const types = [...text.matchAll(/^\{(?:"seq":\d+,.*?)?"event_type":"([a-z_]+)"/gm)];
  return types.map(([, type]) => type);
}

const write = fs.writeSync;
fs.writeSync = (fd, bytes, ...rest) => {
  const written = write(fd, bytes, ...rest);
  const types = fd > 2 ? logEvents(bytes) : [];
  const [first] = types;
  // deltas are best effort: what is lost with them is no boundary
  if (first !== undefined && !first.endsWith('_delta')) step(`append ${types.join('+')}`);
  return written;
};

const force = fs.fdatasync;
fs.fdatasync = (fd, done) => {
  force(fd, (error) => {
    step('fdatasync');
    done(error);
  });
};

const forceNow = fs.fdatasyncSync;
fs.fdatasyncSync = (fd) => {
  forceNow(fd);
  step('fdatasync');
};

const link = fs.linkSync;
fs.linkSync = (from, to) => {
  link(from, to);
  step(`link ${path.basename(to)}`);
};

const unlink = fs.unlinkSync;
fs.unlinkSync = (file) => {
  unlink(file);
  if (path.basename(file) === 'lease.json') step('unlink lease.json');
};

const rename = fs.renameSync;
fs.renameSync = (from, to) => {
  rename(from, to);
  step(`rename ${path.extname(to) === '.md' ? path.extname(to) : path.basename(to)}`);
};

const { mkdir: make, rename: move, unlink: remove } = fs.promises;
fs.promises.mkdir = async (folder, ...rest) => {
  const made = await make(folder, ...rest);
  if (made !== undefined) step(`mkdir ${path.basename(path.dirname(folder))}`);
  return made;
};
fs.promises.rename = async (from, to) => {
  await move(from, to);
  step(`rename ${path.basename(to)}`);
};
fs.promises.unlink = async (file) => {
  await remove(file);
  step(`unlink ${path.basename(file)}`);
};

const Database = require('better-sqlite3');
const transaction = Database.prototype.transaction;
Database.prototype.transaction = function (work) {
  const made = transaction.call(this, work);
  const { name } = this;
  return {
    immediate: (...values) => {
      const result = made.immediate(...values);
      // the method of the store whose transaction it is
      const [, method = 'open'] =
        /Database\.write .*\n\s+at (?:async )?(?:\w+\.)?(\w+)/.exec(new Error('where').stack) ?? [];
      if (!name.endsWith('index.db')) step(`commit ${path.basename(name)} ${method}`);
      return result;
    },
  };
};
syncBuiltinESMExports();
