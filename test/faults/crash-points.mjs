// Loaded into a rye process with --import: counts every durable step, and kills the process behind the one it is told.
import { appendFileSync } from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import process from 'node:process';

const require = createRequire(import.meta.url);
const fs = require('node:fs');
const killAt = Number(process.env['RYE_TEST_KILL_AT'] ?? Number.POSITIVE_INFINITY);
const traceFile = process.env['RYE_TEST_TRACE'];
let count = 0;

/** The `n`th durable step is done. */
function step(name) {
  count += 1;
  if (traceFile !== undefined) appendFileSync(traceFile, `${name}\n`);
  if (count >= killAt) process.kill(process.pid, 'SIGKILL');
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

const rename = fs.rename;
fs.rename = (from, to, done) => {
  rename(from, to, (error) => {
    if (!error) step(`rename ${path.extname(to) === '.md' ? path.extname(to) : path.basename(to)}`);
    done(error);
  });
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
      const [, method = 'open'] = /Sqlite\w+\.(\w+)/.exec(new Error('where').stack) ?? [];
      if (!name.endsWith('index.db')) step(`commit ${path.basename(name)} ${method}`);
      return result;
    },
  };
};
syncBuiltinESMExports();
