// Full-text search over 10,000 thread exports, against a script of FTS5 that does the least; and over documents of 10 MB, against
// `node -e 0`. Whole processes.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { interleave, measureProcess, ms, openWorkspace, processRow, RYE, row } from './harness.mjs';

const EXPORTS = 10_000;
const ROUNDS = 9;
/** Building the index takes seconds. */
const BUILDS = 3;
const TARGET = 1.5;
const BUILD_TARGET = 2;
const SCRIPT = fileURLToPath(new URL('fts-script.mjs', import.meta.url));
/** 200 ms where `node -e 0` takes 24.4 ms. */
const LARGE_TARGET = 8.2;
/** 150 ms where `node -e 0` takes 20 ms. */
const CLONE_TARGET = 7.5;
const WORDS = ['ledger', 'thread', 'anchor', 'quartz', 'meadow', 'harbor', 'violet', 'copper'];

export async function run() {
  await manyExports();
  await largeDocuments();
}

/** Three documents of 10 MB: every other word is the same, every word is, and no word is twice. */
async function largeDocuments() {
  const { env, project, rye, close } = openWorkspace();
  const bodies = {
    every_other: 'x é '.repeat(2_000_000),
    every: 'z '.repeat(5_000_000),
    none: Array.from({ length: 1_000_000 }, (_, at) => `abcd${at.toString(36)}`).join(' '),
  };
  try {
    keepIndex(rye);
    const folder = path.join(project, '.ai', 'knowledge');
    mkdirSync(folder, { recursive: true });
    for (const [name, body] of Object.entries(bodies)) {
      writeFileSync(path.join(folder, `${name}.md`), `---\ntitle: ${name}\n---\n\n${body}\n`);
    }
    const search = (query) =>
      measureProcess([RYE, 'search', 'knowledge', query], { cwd: project, env });
    const build = search('x');
    const samples = await interleave(
      {
        'node -e 0': () => measureProcess(['-e', '0'], { cwd: project, env }),
        'every other word': () => search('x'),
        'every word': () => search('z'),
        'phrase of it': () => search('"z z z z z z z z"'),
        'prefix of a million words': () => search('a*'),
      },
      ROUNDS,
    );
    head('search over 10 MB documents', 'node');
    row('  first search, builds the index', ms(build.wall));
    rows(samples, { floor: 'node -e 0', target: LARGE_TARGET });
  } finally {
    close();
  }
}

/** The first lines of an export as rye writes it. */
function exportHead(at) {
  return `---
name: d-${at}
title: "d: Thread ${at}"
entry_type: thread_transcript
version: 1.0.0
thread_id: d-${at}
directive: d${at % 50}
status: completed
model: demo
created_at: 2026-11-23T07:29:03.865Z
finished_at: 2026-11-23T07:29:04.512Z
duration_seconds: 0.273
cost:
  input_tokens: 100
  output_tokens: 10
  turns: 2
  spend: 0.001
capabilities_ref: .ai/state/threads/d-${at}/capabilities.md
tags:
  - thread
  - completed
---
`;
}

async function manyExports() {
  const { env, project, rye, close } = openWorkspace();
  try {
    await freshClone({ env, project });
    keepIndex(rye);
    await firstIndex({ env, project });
    await answers({ env, project });
  } finally {
    close();
  }
}

/** A project as a clone has it, without `.ai/state`: the first search makes an index in the user's cache. */
async function freshClone({ env, project }) {
  writeExports(project);
  const options = { cwd: project, env };
  const search = () => measureProcess([RYE, 'search', 'knowledge', 'needle4711'], options);
  const { wall } = search();
  const samples = await interleave(
    { 'node -e 0': () => measureProcess(['-e', '0'], options), 'rye search': search },
    ROUNDS,
  );
  head('search in a fresh clone with 10,000 exports', 'node');
  row('  first search, builds the index', ms(wall));
  rows(samples, { floor: 'node -e 0', target: CLONE_TARGET });
}

function writeExports(project) {
  for (let at = 0; at < EXPORTS; at += 1) {
    const folder = path.join(project, '.ai', 'knowledge', 'agent', 'threads', `d${at % 50}`);
    if (at < 50) mkdirSync(folder, { recursive: true });
    const body = Array.from(
      { length: 300 },
      (_, word) => WORDS[(at * 7 + word * 3) % WORDS.length],
    );
    writeFileSync(
      path.join(folder, `d${at % 50}-${at}.md`),
      `${exportHead(at)}\n${body.join(' ')} needle${at}\n`,
    );
  }
}

/** Runs a thread, which makes the folder of the index: a search alone makes nothing in the project. */
function keepIndex(rye) {
  rye('run', 'hello', '-q');
}

const exportsOf = (project) => path.join(project, '.ai', 'knowledge', 'agent', 'threads');

function removeDatabase(file) {
  for (const end of ['', '-wal', '-shm']) rmSync(`${file}${end}`, { force: true });
}

async function firstIndex({ env, project }) {
  const options = { cwd: project, env };
  const samples = await interleave(
    {
      'script of FTS5': () => {
        removeDatabase(`${env.HOME}/fts.db`);
        return measureProcess([SCRIPT, 'build', `${env.HOME}/fts.db`, exportsOf(project)], options);
      },
      'rye search': () => {
        removeDatabase(path.join(project, '.ai', 'state', 'index.db'));
        return measureProcess([RYE, 'search', 'knowledge', 'needle1'], options);
      },
    },
    BUILDS,
  );
  head('first index of 10,000 exports', 'script');
  rows(samples, { floor: 'script of FTS5', target: BUILD_TARGET });
}

async function answers({ env, project }) {
  const options = { cwd: project, env };
  const script = (work, query) =>
    measureProcess([SCRIPT, work, `${env.HOME}/fts.db`, query], options);
  const search = (query) => measureProcess([RYE, 'search', 'knowledge', query], options);
  for (const [name, query] of [
    ['one hit', 'needle4711'],
    ['10,000 hits', 'quartz AND meadow'],
  ]) {
    const samples = await interleave(
      {
        'script of FTS5, compares each file': () => script('stat', query),
        'the same, trusts its index': () => script('trust', query),
        'rye search': () => search(query),
      },
      ROUNDS,
    );
    head(`search over 10,000 exports: ${name}`, 'script');
    rows(samples, { floor: 'script of FTS5, compares each file', target: TARGET });
  }
}

function head(name, floor) {
  row(name, 'wall', `over ${floor}, wall`, `over ${floor}, CPU`, 'target, CPU');
}

function rows(samples, { floor, target }) {
  const floors = samples[floor];
  for (const [name, taken] of Object.entries(samples)) {
    const isOurs = name !== floor && !name.startsWith('the same');
    processRow(name, { samples: taken, floors, target: isOurs ? target : undefined });
  }
}
