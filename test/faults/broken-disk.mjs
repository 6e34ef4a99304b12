// Loaded into a rye process with --import: from its `after`-th write on, one kind of file can't be written.
import { readlinkSync } from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import process from 'node:process';

const require = createRequire(import.meta.url);
const fs = require('node:fs');
/** `name`: how the path ends. `code`: of the system, or of SQLite for a database. */
const { name, code, after } = JSON.parse(process.env['RYE_TEST_DISK'] ?? '{}');
let written = 0;

function isBroken(path) {
  if (!path.endsWith(name)) return false;
  written += 1;
  return written > after;
}

function failure() {
  return Object.assign(new Error(`${code}: the disk of this test`), { code });
}

const write = fs.writeSync;
fs.writeSync = (fd, ...rest) => {
  if (fd > 2 && isBroken(readlinkSync(`/proc/self/fd/${fd}`))) throw failure();
  return write(fd, ...rest);
};

const rename = fs.rename;
fs.rename = (from, to, done) => {
  if (isBroken(to)) done(failure());
  else rename(from, to, done);
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
