// A person at a shell, in a separate project and home. Counts the commands that are typed and the lines that are written.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { RYE } from './harness.mjs';

/** Longer than any job takes on a busy machine. */
const PATIENCE_MS = 60_000;

export class Person {
  commands = 0;
  lines = 0;
  seconds = 0;

  /** `name` separates the homes and projects of several people of one job. */
  constructor(folder, { url, name = 'ada' }) {
    this.folder = folder;
    this.url = url;
    this.home = path.join(folder, `${name}-home`);
    this.project = path.join(folder, name);
    for (const made of [this.home, this.project]) mkdirSync(made, { recursive: true });
    this.env = {
      PATH: process.env.PATH,
      HOME: this.home,
      ANTHROPIC_API_KEY: 'bench',
      ANTHROPIC_BASE_URL: url,
      GIT_CONFIG_GLOBAL: '/dev/null',
    };
  }

  /** Runs `rye` as the person types it. Throws if it ends with another status than expected. */
  rye(args, { code = 0, env, stdin } = {}) {
    this.commands += 1;
    return this.#spawn(process.execPath, [RYE, ...args], { code, env, stdin });
  }

  /** Runs another program that the job needs. */
  shell(line, { code = 0 } = {}) {
    this.commands += 1;
    return this.#spawn('sh', ['-c', line], { code });
  }

  /** Prepares or inspects the machine; not what the person types. */
  prepare(line) {
    const { seconds } = this;
    const output = this.#spawn('sh', ['-c', line], { code: 0 });
    this.seconds = seconds;
    return output;
  }

  #spawn(program, args, { code, env, stdin = '' }) {
    const began = performance.now();
    const { status, stdout, stderr } = spawnSync(program, args, {
      cwd: this.project,
      env: { ...this.env, ...env },
      encoding: 'utf8',
      input: stdin,
      timeout: PATIENCE_MS,
    });
    this.seconds += (performance.now() - began) / 1000;
    const words = args.filter((word) => word !== RYE).join(' ');
    if (status !== code)
      throw new Error(`${words}: exit ${status}, not ${code}\n${stderr}${stdout}`);
    return { stdout, stderr, lines: stdout.trimEnd().split('\n') };
  }

  /** Runs `rye` until it prints the mark, then signals it; resolves with its exit status. */
  async interrupt(args, { signal, mark }) {
    this.commands += 1;
    const began = performance.now();
    const child = spawn(process.execPath, [RYE, ...args], {
      cwd: this.project,
      env: this.env,
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: PATIENCE_MS,
    });
    let printed = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        printed += text;
        if (printed.includes(mark)) child.kill(signal);
      });
    }
    const code = await new Promise((resolve) => void child.once('close', resolve));
    this.seconds += (performance.now() - began) / 1000;
    return { code, printed };
  }

  /** Writes a file; counts the lines that were not in it before, such as a template's lines. */
  write(name, text) {
    const file = path.join(this.project, name);
    const before = new Set(existsSync(file) ? readFileSync(file, 'utf8').split('\n') : []);
    const fresh = text.split('\n').filter((line) => line.trim() !== '' && !before.has(line));
    this.lines += fresh.length;
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  }

  /** Makes a directive from the template with `edits`, pairs of a text and what replaces it. */
  directive(id, edits) {
    this.rye(['new', 'directive', id]);
    const name = path.join('.ai', 'directives', `${id}.md`);
    let text = readFileSync(path.join(this.project, name), 'utf8');
    for (const [part, replacement] of edits) {
      if (!text.includes(part)) throw new Error(`the template of a directive has no ${part}`);
      text = text.replace(part, () => replacement);
    }
    this.write(name, text);
  }
}
