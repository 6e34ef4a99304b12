import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { temporaryWorkspace, type Workspace } from '../helpers/workspace.ts';

const WAIT = { timeout: 60_000, interval: 50 };

const ESCAPE = '\u001b';
const COLOR = new RegExp(`${ESCAPE}\\[[\\d;]*m`);

let space: Workspace & { readonly remove: () => void };
let program = '';
let threadId = '';
let opened = 0;

/** A separate tmux server for each test, so that no other session is affected. */
let server = '';

function tmux(...args: readonly string[]): string {
  return execFileSync('tmux', ['-L', server, '-f', '/dev/null', ...args], {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'], HOME: space.home, TERM: 'xterm-256color', LANG: 'C.UTF-8' },
  });
}

/** A new terminal with a shell in the project. */
class Terminal {
  readonly #name: string;

  constructor(name: string, columns: number, rows: number) {
    this.#name = name;
    const size = ['-x', String(columns), '-y', String(rows)];
    tmux('new-session', '-d', '-s', name, ...size, '-c', space.project, 'sh');
  }

  run(args: string, env = ''): void {
    this.runLine(`${env} ${process.execPath} ${path.join(program, 'bin', 'rye.js')} ${args}`);
  }

  /** Runs a command line, then prints its exit status and the settings of the terminal. */
  runLine(command: string): void {
    this.type(`clear; ${command}; echo "exit=$? $(stty -a | grep -o ' -\\?icanon') rye-is-gone"`);
    this.press('Enter');
  }

  press(...keys: readonly string[]): void {
    tmux('send-keys', '-t', this.#name, ...keys);
  }

  type(text: string): void {
    tmux('send-keys', '-t', this.#name, '-l', text);
  }

  screen(...options: readonly string[]): string {
    return tmux('capture-pane', '-p', '-t', this.#name, ...options);
  }

  resize(columns: number, rows: number): void {
    tmux('resize-window', '-t', this.#name, '-x', String(columns), '-y', String(rows));
  }

  /** Returns true if a program uses the alternate screen. */
  isAlternate(): boolean {
    return tmux('display-message', '-p', '-t', this.#name, '#{alternate_on}').trim() === '1';
  }

  /** The process id of the `rye` that runs in this terminal. */
  ryePid(): number {
    const shell = tmux('display-message', '-p', '-t', this.#name, '#{pane_pid}').trim();
    const children = readFileSync(`/proc/${shell}/task/${shell}/children`, 'utf8');
    return Number(children.trim().split(' ')[0]);
  }

  async shows(text: string | RegExp): Promise<void> {
    const wanted =
      typeof text === 'string' ? expect.stringContaining(text) : expect.stringMatching(text);
    await expect.poll(() => this.screen(), WAIT).toEqual(wanted);
  }

  /** The shell is back, its line editing with it, and nothing of the browser is left on the screen. */
  async isGivenBack(status: number): Promise<void> {
    await this.shows(`exit=${status}  icanon rye-is-gone`);
    expect(this.screen()).not.toContain('│');
    expect(
      tmux('display-message', '-p', '-t', this.#name, '#{alternate_on} #{cursor_flag}').trim(),
    ).toBe('0 1');
  }
}

beforeEach(async () => {
  opened += 1;
  server = `rye-test-${process.pid}-${opened}`;
  program = await cliPackage();
  space = await temporaryWorkspace({ init: true });
  const { stdout } = await space.rye(['execute', 'directive', 'hello', '--json']);
  threadId = String(JSON.parse(stdout).thread_id);
});

afterEach(() => {
  tmux('kill-server');
  space.remove();
});

describe('rye threads open in a terminal', () => {
  it('shows the tree, filters, searches, labels and branches, and the log has it all', async () => {
    const terminal = new Terminal('work', 100, 24);
    terminal.run(`threads open ${threadId}`);
    await terminal.shows('[1 default]');
    await terminal.shows(/› ● user/);
    terminal.press('a');
    await terminal.shows(/›.*◆ tool/);
    terminal.press('5');
    await terminal.shows('[5 all]');
    await terminal.shows('thread_completed');
    terminal.press('C-o');
    await terminal.shows('[1 default]');
    terminal.press('/');
    terminal.type('making the greeting');
    terminal.press('C-u');
    terminal.type('assistant Step 1 of 1');
    terminal.press('Enter');
    await terminal.shows(/›.*Step 1 of 1/);
    await terminal.shows('rye_core_greet');
    terminal.press('L');
    terminal.type('the ünïcode label');
    terminal.press('Enter');
    await terminal.shows('labeled the ünïcode label');
    terminal.press('b');
    await terminal.shows('y/n Move the head');
    terminal.press('y');
    await terminal.shows('the head is now');
    // the result of its call is finished, so it comes along to the new branch
    await terminal.shows(/›.*● model \[the ünïcode label\]/);
    await terminal.shows(/├─◆ tool/);
    terminal.press('q');
    await terminal.isGivenBack(0);
    const view = await space.json(['threads', 'entries', threadId]);
    expect(view['entries']).toContainEqual(
      expect.objectContaining({ label: 'the ünïcode label', leaf: false, kind: 'assistant' }),
    );
    expect(view['entries']).toContainEqual(
      expect.objectContaining({ leaf: true, kind: 'tool_result' }),
    );
    expect(await space.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
  });

  it('follows the size of the terminal, down to 40 columns', async () => {
    const terminal = new Terminal('size', 80, 24);
    terminal.run(`threads open ${threadId}`);
    await terminal.shows('│');
    terminal.resize(40, 12);
    await expect.poll(() => terminal.screen(), WAIT).not.toContain('│');
    await terminal.shows('›');
    terminal.press('Enter');
    await terminal.shows('UTC ·');
    terminal.press('Escape');
    await terminal.shows('›');
    terminal.resize(120, 30);
    await terminal.shows('│');
    await expect.poll(() => terminal.screen().split('\n').length, WAIT).toBe(31);
    terminal.press('q');
    await terminal.isGivenBack(0);
  });

  it.each(['SIGINT', 'SIGTERM'] as const)('gives the terminal back after %s', async (signal) => {
    const terminal = new Terminal(signal, 80, 24);
    terminal.run(`threads open ${threadId}`);
    await terminal.shows('[1 default]');
    process.kill(terminal.ryePid(), signal);
    await terminal.isGivenBack(130);
  });

  it('stops like any job with Ctrl+Z, and is back with fg as it was', async () => {
    const terminal = new Terminal('stop', 80, 24);
    terminal.run(`threads open ${threadId}`);
    await terminal.shows('[1 default]');
    terminal.press('5');
    await terminal.shows('[5 all]');
    for (const stop of ['key', 'signal']) {
      if (stop === 'key') terminal.press('C-z');
      else process.kill(terminal.ryePid(), 'SIGTSTP');
      // 128 + SIGTSTP
      await terminal.isGivenBack(148);
      terminal.runLine('fg');
      await terminal.shows('[5 all]');
      expect(terminal.isAlternate()).toBe(true);
    }
    terminal.press('g');
    await terminal.shows(/›.*system/);
    terminal.press('q');
    await terminal.isGivenBack(0);
  });

  it('restores the terminal after an internal error', async () => {
    const broken = path.join(space.project, 'broken.mjs');
    writeFileSync(
      broken,
      "process.on('SIGUSR2', () => { throw new Error('broken on purpose'); });\n",
    );
    const terminal = new Terminal('broken', 80, 24);
    terminal.run(`threads open ${threadId}`, `NODE_OPTIONS='--import ${broken}'`);
    await terminal.shows('[1 default]');
    process.kill(terminal.ryePid(), 'SIGUSR2');
    await terminal.isGivenBack(1);
    expect(terminal.screen()).toContain('broken on purpose');
  });

  it('uses no colors with NO_COLOR', async () => {
    const terminal = new Terminal('plain', 80, 24);
    terminal.run(`threads open ${threadId}`, 'NO_COLOR=1');
    await terminal.shows('[1 default]');
    expect(terminal.screen('-e')).not.toMatch(COLOR);
    terminal.press('q');
    await terminal.isGivenBack(0);
    terminal.run(`threads open ${threadId}`);
    await terminal.shows('[1 default]');
    expect(terminal.screen('-e')).toMatch(COLOR);
    terminal.press('C-c');
    await terminal.isGivenBack(0);
  });

  it('hands over to a resume, in the terminal as it was', async () => {
    const terminal = new Terminal('resume', 100, 24);
    const ran = await space.json(['execute', 'directive', 'hello', '--thread-id', 'again']);
    expect(ran).toMatchObject({ status: 'completed' });
    terminal.run('threads open again');
    await terminal.shows('[1 default]');
    terminal.press('a');
    await terminal.shows(/›.*◆ tool/);
    terminal.press('r');
    await terminal.shows('message (may be empty)');
    terminal.type('once more');
    terminal.press('Enter');
    await terminal.shows('resume the thread from');
    terminal.press('y');
    await terminal.shows(/exit=\d+ {2}icanon rye-is-gone/);
    expect(terminal.screen()).toContain('✓ 3 turns');
    const { threads } = await space.json(['threads', 'list']);
    expect(threads).toContainEqual(expect.objectContaining({ thread_id: 'again', epoch: 2 }));
  });

  it('refuses where there is no terminal', async () => {
    const { code, stderr } = await space.rye(['threads', 'open', threadId]);
    expect([code, stderr]).toEqual([2, expect.stringContaining('[terminal_required]')]);
    const file = path.join(space.project, 'out.json');
    const terminal = new Terminal('json', 80, 24);
    writeFileSync(file, '');
    terminal.run(`threads open ${threadId} --json > out.json`);
    await terminal.isGivenBack(2);
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({
      success: false,
      error: { code: 'terminal_required' },
    });
  });
});
