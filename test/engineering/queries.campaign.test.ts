import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { workspace } from '../helpers/workspace.ts';

/** Writes each statement that a process prepares, with its database, to a file when it exits. */
const METER = `
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
const Database = createRequire(process.env.PROGRAM)('better-sqlite3');
const prepared = [];
const { prepare } = Database.prototype;
Database.prototype.prepare = function (sql) {
  prepared.push([path.basename(this.name), sql]);
  return prepare.call(this, sql);
};
process.on('exit', () => fs.writeFileSync(process.env.PREPARED, JSON.stringify(prepared)));
`;

it('no statement of a run looks at every row of a table', async () => {
  const { project, home } = await workspace({ init: false });
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const file = path.join(home, 'prepared.json');
  const rye = (...args: readonly string[]) =>
    spawnSync(
      process.execPath,
      ['--import', `data:text/javascript,${encodeURIComponent(METER)}`, program, ...args],
      {
        cwd: project,
        env: { PATH: process.env['PATH'], HOME: home, PROGRAM: program, PREPARED: file },
        encoding: 'utf8',
      },
    );
  expect(rye('init').status).toBe(0);
  expect(rye('run', 'hello').status).toBe(0);
  expect(rye('run', 'hello').status).toBe(0);
  const prepared = JSON.parse(readFileSync(file, 'utf8')) as readonly (readonly [string, string])[];
  const reading = prepared.filter(([, sql]) => /^\s*(?:SELECT|WITH|UPDATE|DELETE)/i.test(sql));
  const databases = new Set(reading.map(([name]) => name));
  expect([...databases].toSorted()).toContain('registry.db');
  const scans: string[] = [];
  for (const [name, sql] of reading) {
    const folder = name === 'index.db' ? '.ai/state' : '.ai/state/threads';
    const database = new Database(path.join(project, folder, name), { readonly: true });
    const parameters = Array.from({ length: sql.split('?').length - 1 }, () => 'x');
    const steps = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters);
    database.close();
    for (const { detail } of steps as readonly { readonly detail: string }[]) {
      if (/^SCAN (?!CONSTANT|\d|subtree|above|sqlite_master)/.test(detail))
        scans.push(`${detail}: ${sql}`);
    }
  }
  expect(scans).toEqual([]);
});
