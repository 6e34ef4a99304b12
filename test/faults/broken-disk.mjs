// Loaded into a rye process with --import: from its `after`-th write on, one kind of file can't be written.
import { readlinkSync } from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import process from 'node:process';

const require = createRequire(import.meta.url);
const fs = require('node:fs');
/** `name`: how the path ends. `code`: of the system, or of SQLite for a database. `at`: the call that fails. */
const { name, code, after, at = 'write' } = JSON.parse(process.env['RYE_TEST_DISK'] ?? '{}');
let written = 0;
let isShortened = false;

function isBroken(path) {
  if (!path.endsWith(name)) return false;
  written += 1;
  return written > after;
}

function failure() {
  return Object.assign(new Error(`${code}: the disk of this test`), { code });
}

function pathOf(fd) {
  return readlinkSync(`/proc/self/fd/${fd}`);
}

// a disk that fills up takes a part first and reports nothing: the next write fails
const write = fs.writeSync;
fs.writeSync = (fd, bytes, offset = 0, ...rest) => {
  if (at !== 'write' || fd <= 2 || !isBroken(pathOf(fd))) return write(fd, bytes, offset, ...rest);
  const half = (bytes.length - offset) >> 1;
  if (isShortened || half === 0) throw failure();
  isShortened = true;
  return write(fd, bytes, offset, half);
};

const syncInPool = fs.fsync;
fs.fsync = (fd, done) => {
  if (at === 'sync' && isBroken(pathOf(fd))) process.nextTick(done, failure());
  else syncInPool(fd, done);
};

const sync = fs.fsyncSync;
fs.fsyncSync = (fd) => {
  if (at === 'sync' && isBroken(pathOf(fd))) throw failure();
  sync(fd);
};

const rename = fs.renameSync;
fs.renameSync = (from, to) => {
  if (at === 'write' && isBroken(to)) throw failure();
  rename(from, to);
};

const Database = require('better-sqlite3');
const transaction = Database.prototype.transaction;
Database.prototype.transaction = function (work) {
  const made = transaction.call(this, work);
  return {
    immediate: (...values) => {
      if (isBroken(this.name)) throw new Database.SqliteError('the disk of this test', code);
      return made.immediate(...values);
    },
  };
};
syncBuiltinESMExports();
