// What the trials share: places to work in, processes that are watched, a repeatable source of chance, and the table.
import { spawn } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const RYE = fileURLToPath(new URL('../../bin/rye.js', import.meta.url));

/** A run that takes longer than this has failed. */
const PATIENCE_MS = 120_000;

/** Numbers from 0 to below 1 that are the same for the same seed (mulberry32). */
export function chance(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Starts a program and collects its output; `done` never rejects. */
export function start(argv, options) {
  const [program, ...args] = argv;
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) {
    child[name].setEncoding('utf8').on('data', (text) => {
      output[name] += text;
    });
  }
  const timer = setTimeout(() => child.kill('SIGKILL'), PATIENCE_MS);
  const done = new Promise((resolve) => {
    const finish = (code, signal) => {
      clearTimeout(timer);
      resolve({ code, signal, ...output });
    };
    child.once('error', () => finish(null, 'not started'));
    child.once('exit', () => {
      // a grandchild that outlives the program keeps the pipes open
      setTimeout(() => finish(child.exitCode, child.signalCode), 500).unref();
    });
    child.once('close', finish);
  });
  return { child, output, done };
}

/** Makes a project and a home below a folder; `above` is the folder of the project if it is another one. */
function placeIn(root, above = root) {
  const project = path.join(above, 'project');
  const home = path.join(root, 'home');
  return {
    root,
    project,
    home,
    ai: (...names) => path.join(project, '.ai', ...names),
    thread: (...names) => path.join(project, '.ai', 'state', 'threads', ...names),
    env: { PATH: process.env.PATH, HOME: home },
    command: (args) => [process.execPath, RYE, ...args],
    start(args) {
      return start(this.command(args), { cwd: project, env: this.env });
    },
    async rye(...args) {
      return await this.start(args).done;
    },
    /** The one JSON document of a command. */
    async json(...args) {
      const told = await this.rye('--json', ...args);
      try {
        return { ...told, document: JSON.parse(told.stdout) };
      } catch {
        return { ...told, document: null };
      }
    },
    write(name, text) {
      const file = path.join(project, name);
      mkdirSync(path.dirname(file), { recursive: true });
      writeFileSync(file, text);
      return file;
    },
    /** Counts each line of the file that the commands write. */
    effects(folder = project) {
      const file = path.join(folder, 'effects.log');
      const counts = new Map();
      if (!existsSync(file)) return counts;
      for (const line of readFileSync(file, 'utf8').split('\n').filter(Boolean))
        counts.set(line, (counts.get(line) ?? 0) + 1);
      return counts;
    },
    remove: () => rmSync(root, { recursive: true, force: true, maxRetries: 5 }),
  };
}

export function directive(name, body, limits = 'turns="60" spend="50"') {
  return `\`\`\`xml
<directive name="${name}" version="1.0.0">
<metadata><description>${name}</description><category></category><author>trials</author>
<model tier="general" provider="anthropic" />
<limits ${limits} />
<permissions><execute><tool>rye/bash</tool><tool>trial/flood</tool></execute>
<acknowledge risk="elevated">the trials count what commands did</acknowledge></permissions></metadata>
</directive>
\`\`\`

${body}
`;
}

const FLOOD = `#!/usr/bin/env bash
# rye:tool
# version: 1.0.0
# description: Prints more than a context should hold.
# traits: {risk: safe}
# /rye:tool
seq 60000
`;

let prepared;

/** A project with a key and signed directives, made once; every trial works in a copy. */
async function prepare() {
  const made = placeIn(realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-trials-'))));
  for (const folder of [made.project, made.home]) mkdirSync(folder);
  await must(made.rye('init'));
  made.write('.ai/directives/work.md', directive('work', 'Do the steps.'));
  made.write('.ai/directives/long.md', directive('long', 'word '.repeat(40_000)));
  made.write('.ai/tools/trial/flood.sh', FLOOD);
  await must(made.rye('sign', 'directive', '*'));
  await must(made.rye('sign', 'tool', '**'));
  return made;
}

export async function must(running) {
  const told = await running;
  if (told.code !== 0) throw new Error(`exit ${told.code ?? told.signal}: ${told.stderr}`);
  return told;
}

function askAt({ env }, url) {
  env.ANTHROPIC_API_KEY = 'trial-key';
  env.ANTHROPIC_BASE_URL = url;
}

/** A fresh project and a fresh home, whose model is the given session. `below`: a folder for the project. */
export async function openPlace(session, { below } = {}) {
  prepared ??= prepare();
  const from = await prepared;
  const place = placeIn(realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-trial-'))), below);
  cpSync(from.home, place.home, { recursive: true });
  cpSync(from.project, place.project, { recursive: true });
  if (session) askAt(place, session.url);
  return place;
}

/** A copy of a place with what happened there. */
export function copyOf(place) {
  const made = placeIn(realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-trial-'))));
  cpSync(place.home, made.home, { recursive: true });
  cpSync(place.project, made.project, { recursive: true });
  askAt(made, place.env.ANTHROPIC_BASE_URL);
  return made;
}

export async function closePlaces() {
  if (prepared) (await prepared).remove();
}

/** Runs `work(index)` for each index, `width` at once. */
export async function pool(count, width, work) {
  let next = 0;
  const worker = async () => {
    while (next < count) {
      next += 1;
      await work(next - 1);
    }
  };
  await Promise.all(Array.from({ length: Math.min(width, count) }, worker));
}

const ACTIVE = new Set(['created', 'running']);

/** All threads of a place that a process should own. */
export async function leftRunning(place) {
  const { document } = await place.json('threads', 'list');
  return (document?.threads ?? []).filter(({ status }) => ACTIVE.has(status)).length;
}

/** Returns true if another process with this text in its arguments is alive. */
export function processesNaming(text) {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(text);
      } catch {
        return false; // it has ended meanwhile
      }
    }).length;
}

export function hasStackTrace({ stdout, stderr, signal }) {
  return signal !== null || /^\s+at .*:\d+:\d+\)?$/m.test(`${stdout}\n${stderr}`);
}

/** The part of a log that its last checkpoint covers. */
export function signedLines(log) {
  const lines = log.split('\n').slice(0, -1);
  const last = lines.findLastIndex((line) => line.includes('"event_type":"checkpoint"'));
  return lines.slice(0, last + 1).map((line) => JSON.parse(line));
}

const PROBLEM_LENGTH = 500;
const COUNTS = ['lost', 'repeated', 'running', 'missed', 'understated', 'broken'];

/** One row of the table. A count other than 0 is a target that was missed; `fail` also prints how to repeat it. */
export function row(trial) {
  const made = { trial, n: 0, notes: new Map(), problems: [] };
  for (const name of COUNTS) made[name] = 0;
  return Object.assign(made, {
    note: (text, by = 1) => made.notes.set(text, (made.notes.get(text) ?? 0) + by),
    /** Adds a measured figure to the notes. */
    tell: (text) => made.notes.set(text, null),
    fail(count, text) {
      made[count] += 1;
      made.problems.push(`${trial}: ${text.slice(0, PROBLEM_LENGTH)}`);
    },
  });
}

export function failed(one) {
  return COUNTS.some((name) => one[name] > 0);
}

function tableLine(values) {
  return `| ${values.join(' | ')} |`;
}

/** Returns the table as Markdown. */
export function table(rows) {
  const head = [
    'trial',
    'n',
    'lost',
    'repeated',
    'left running',
    'not found',
    'understated',
    'other failures',
    'notes',
  ];
  const cells = rows.map((one) => [
    one.trial,
    one.n,
    ...COUNTS.map((name) => one[name]),
    [...one.notes].map(([text, by]) => (by === null ? text : `${by} ${text}`)).join(', '),
  ]);
  return [tableLine(head), tableLine(head.map(() => '---')), ...cells.map(tableLine)].join('\n');
}
