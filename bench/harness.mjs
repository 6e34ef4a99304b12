// What the benchmarks share: interleaved samples, medians, ratios to a floor of the same run, a place to work in.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

/** The program that is measured: `run.mjs` installs the packed package and names it. */
export const RYE =
  process.env.RYE_BENCH_PROGRAM ?? fileURLToPath(new URL('../bin/rye.js', import.meta.url));

/** A directive of one turn, which the server of `wire.mjs` answers with text. */
export const TURN_DIRECTIVE = `\`\`\`xml
<directive name="turn" version="1.0.0">
<metadata><description>One turn.</description><category></category><author>bench</author>
<limits turns="1" spend="1"/></metadata>
</directive>
\`\`\`

Answer in one word.
`;

export function median(values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}

/** Makes a project and a home in a temporary folder, with a signing key. `program` is the bin/rye.js that `rye` runs. */
export function openWorkspace(program = RYE) {
  const root = mkdtempSync(path.join(tmpdir(), 'rye-bench-'));
  const env = { PATH: process.env.PATH, HOME: path.join(root, 'home') };
  const project = path.join(root, 'project');
  spawnSync('mkdir', ['-p', env.HOME, project]);
  const rye = (...args) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], {
      cwd: project,
      env,
      encoding: 'utf8',
    });
    if (status !== 0) throw new Error(`rye ${args.join(' ')}: ${stderr}`);
    return stdout;
  };
  rye('init');
  return { root, env, project, rye, close: () => rmSync(root, { recursive: true, force: true }) };
}

// bash's `time` counts the processors of the whole process, from its start to its very end
const TIMED = 'TIMEFORMAT="timed %3R %3U %3S"; time "$0" "$@"';

/** One whole process: milliseconds on the clock and of processors, and what it printed. */
export function measureProcess(args, { node = process.execPath, ...options }) {
  const spawned = spawnSync('bash', ['-c', TIMED, node, ...args], {
    ...options,
    encoding: 'utf8',
  });
  const [, real, user, system] = /^timed (\S+) (\S+) (\S+)$/m.exec(spawned.stderr) ?? [];
  if (spawned.status !== 0 || real === undefined) {
    throw new Error(`${args.join(' ')}: ${spawned.stderr}`);
  }
  const cpu = (Number(user) + Number(system)) * 1000;
  return { wall: Number(real) * 1000, cpu, stdout: spawned.stdout };
}

const PEAK =
  "import process from 'node:process'; process.on('exit', () => process.stderr.write(`\npeak ${process.resourceUsage().maxRSS}\n`));";

/** The largest size of a whole process in MiB. */
export function peakMemory(args, options) {
  const meter = `data:text/javascript,${encodeURIComponent(PEAK)}`;
  const spawned = spawnSync(process.execPath, ['--import', meter, ...args], {
    ...options,
    encoding: 'utf8',
  });
  const [, kib] = /^peak (\d+)$/m.exec(spawned.stderr) ?? [];
  if (kib === undefined) throw new Error(`${args.join(' ')}: ${spawned.stderr}`);
  return Number(kib) / 1024;
}

/** Processor milliseconds of this process since `process.cpuUsage()` gave `begun`. */
export function cpuSince(begun) {
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / 1000;
}

/** Samples the named actions in turn, so that a busy machine slows all alike. */
export async function interleave(actions, rounds) {
  const samples = Object.fromEntries(Object.keys(actions).map((name) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, action] of Object.entries(actions)) samples[name].push(await action());
  }
  return samples;
}

/** Starts a script of this folder in a separate process; resolves with the first line that it prints. */
export function startServer(script, args = []) {
  const file = fileURLToPath(new URL(script, import.meta.url));
  const child = spawn(process.execPath, [file, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.stdout.setEncoding('utf8').once('data', (line) => {
      resolve({ url: line.trim(), close: () => child.kill() });
    });
  });
}

/** Ratios of this run by benchmark, part and row, for `--check`. */
export const recorded = new Map();
let benchmark = '';
let part = '';

/** Names the benchmark whose rows follow. */
export function beginBenchmark(name) {
  benchmark = name;
}

/** Notes a ratio to a floor of the same run, smaller is better. `--check` compares it with the kept ratio. */
export function record(name, ratio) {
  const key = [benchmark, part, name].map((word) => word.trim()).join(' / ');
  recorded.set(key, Math.round(ratio * 100) / 100);
}

/** Prints a row. One that is not indented begins a part. */
export function row(name, ...cells) {
  if (!name.startsWith(' ')) part = name;
  process.stdout.write(`${name.padEnd(44)}${cells.map((cell) => cell.padStart(21)).join('')}\n`);
}

export function ms(value) {
  return `${value.toFixed(2)} ms`;
}

export function times(value) {
  return `${value.toFixed(2)}×`;
}

export function mib(value) {
  return `${Math.round(value)} MiB`;
}

export function range(values, show) {
  return `${show(Math.min(...values))}–${show(Math.max(...values))}`;
}

/** Renders whether a figure meets its target, or by how much it misses it. */
export function verdict(value, target, show) {
  const bound = `≤ ${show(target)}`;
  return value <= target ? `${bound} met` : `${bound} +${Math.round((value / target - 1) * 100)}%`;
}

/** Prints the row of a whole process against its floor, pair by pair: sampled in turn, so that load slows both alike. */
export function processRow(name, { samples, floors, target }) {
  const ratios = (clock) => samples.map((sample, at) => sample[clock] / floors[at][clock]);
  const wall = ratios('wall');
  const cpu = ratios('cpu');
  const typical = (clock) => median(samples.map((sample) => sample[clock]));
  if (samples !== floors) record(name, median(cpu));
  row(
    `  ${name}`,
    ms(typical('wall')),
    `${times(median(wall))} (${range(wall, times)})`,
    `${times(median(cpu))} (${range(cpu, times)})`,
    target === undefined ? '' : verdict(median(cpu), target, times),
  );
}
