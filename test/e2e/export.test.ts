import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { decodeLine } from '../../src/kernel/log/codec.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { temporaryWorkspace, type Workspace } from '../helpers/workspace.ts';

let here: Workspace & { readonly remove: () => void };
let id = '';
let transcript = '';

beforeAll(async () => {
  here = await temporaryWorkspace({});
  const run = await here.json(['run', 'hello', '--input', 'who=Ada']);
  id = String(run['thread_id']);
  transcript = (run['paths'] as Record<string, string>)['transcript'] ?? '';
});
afterAll(() => here.remove());

function exportIn(...args: readonly string[]) {
  return here.rye(['threads', 'export', id, ...args]);
}

function read(file: string): string {
  return readFileSync(path.join(here.project, file), 'utf8');
}

describe('rye threads export', () => {
  it('prints Markdown, and nothing else, by default', async () => {
    const { stdout, stderr, code } = await exportIn();
    expect({ stderr, code }).toEqual({ stderr: '', code: 0 });
    expect(stdout).toContain(`thread_id: ${id}`);
    expect(stdout).toContain('## Outcome: completed');
    expect(stdout).toContain('Hello, Ada');
  });

  it('prints the path as a log that reads', async () => {
    const { stdout } = await exportIn('--format', 'jsonl');
    const lines = stdout.trimEnd().split('\n').slice(1);
    expect(lines.length).toBeGreaterThan(3);
    expect(lines.flatMap((line) => decodeLine(line)).filter((piece) => 'problem' in piece)).toEqual(
      [],
    );
  });

  it('writes a file whole, with the format of its ending', async () => {
    expect(await exportIn('--out', 'thread.jsonl')).toMatchObject({ code: 0, stdout: '' });
    expect(read('thread.jsonl')).toBe((await exportIn('--format', 'jsonl')).stdout);
    expect(readdirSync(here.project).filter((name) => name.startsWith('thread.'))).toEqual([
      'thread.jsonl',
    ]);
    const { stderr } = await exportIn('--out', 'again.jsonl', '--quiet');
    expect(stderr).toBe('');
  });

  it('makes a page, and a redacted one of the open branch', async () => {
    expect(await exportIn('--out', 'page.html')).toMatchObject({ code: 0 });
    expect(read('page.html')).toMatch(/^<!DOCTYPE html>[^]*record verified[^]*Hello, Ada/);
    const args = ['--format', 'html', '--redact', '--branch'];
    const { redactions, content } = await here.json(['threads', 'export', id, ...args]);
    expect(redactions).toBeGreaterThan(0);
    expect(content).toContain(`Redacted: ${String(redactions)} values`);
    expect(content).not.toContain('<pre><code>Hello, Ada');
  });

  it('answers with one document where JSON is asked for', async () => {
    const inline = await here.json(['threads', 'export', id, '--format', 'jsonl']);
    expect(inline).toMatchObject({ success: true, thread_id: id, format: 'jsonl', problems: [] });
    expect(inline['content']).toBe(read('thread.jsonl'));
    const filed = await here.json(['threads', 'export', id, '--out', 'doc.md']);
    expect(filed).toMatchObject({ path: path.join(here.project, 'doc.md'), format: 'md' });
    expect(filed['bytes']).toBe(Buffer.byteLength(read('doc.md')));
  });

  it.each([
    [['--out', '.ai'], 'invalid_input', 2],
    [['--out', 'no/such/folder.md'], 'invalid_input', 2],
    [['--out', 'page.docx'], 'usage', 2],
    [['--format', 'docx'], 'usage', 2],
    [['--branch', 'zzz'], 'entry_not_found', 6],
  ])('refuses %s', async (args, code, exit) => {
    const { stderr, code: status, stdout } = await exportIn(...args);
    expect(stderr).toContain(`[${code}]`);
    expect({ status, stdout }).toEqual({ status: exit, stdout: '' });
  });

  it('knows no thread that is not there', async () => {
    const { code, stderr } = await here.rye(['threads', 'export', 'nobody', '--out', 'none.md']);
    expect(code).toBe(6);
    expect(stderr).toContain('[thread_not_found]');
    expect(existsSync(path.join(here.project, 'none.md'))).toBe(false);
  });

  it('ends quietly when its reader has left', async () => {
    const folder = await cliPackage();
    const args = [path.join(folder, 'bin', 'rye.js'), 'threads', 'export', id];
    const env = { PATH: process.env['PATH'], HOME: here.home };
    const child = spawn(process.execPath, args, { cwd: here.project, env });
    child.stdout.destroy();
    let stderr = '';
    child.stderr.on('data', (text) => {
      stderr += String(text);
    });
    await once(child, 'close');
    expect(stderr).toBe('');
  });
});

describe('a log that is not as it was written', () => {
  let original = '';
  beforeAll(() => {
    original = readFileSync(transcript, 'utf8');
  });
  afterAll(() => writeFileSync(transcript, original));

  it('is exported as far as it can be read, with a matching exit status', async () => {
    const lines = original.split('\n');
    const at = lines.findIndex((line) => line.includes('"event_type":"message"'));
    lines.splice(at, 0, 'this is no event');
    writeFileSync(transcript, lines.join('\n'));
    const { stdout, stderr, code } = await exportIn('--format', 'jsonl');
    expect(code).toBe(3);
    expect(stderr).toContain('it is not a JSON object');
    expect(stderr).toContain('[transcript_tampered]');
    expect(stdout.split('\n').length).toBeGreaterThan(4);
    const document = await here.json(['threads', 'export', id]);
    expect(document).toMatchObject({
      success: false,
      error: { code: 'transcript_tampered' },
      problems: [{ kind: 'malformed' }],
    });
    expect(document['content']).toContain('Hello, Ada');
  });

  it('is exported without its thread.json too', async () => {
    const file = path.join(path.dirname(transcript), 'thread.json');
    const signed = readFileSync(file);
    writeFileSync(transcript, original);
    rmSync(file);
    const { stdout, stderr, code } = await exportIn('--format', 'html');
    writeFileSync(file, signed);
    expect(code).toBe(3);
    expect(stderr).toContain('[thread_tampered]');
    expect(stdout).toContain('record does not verify');
    expect(stdout).toContain('Hello, Ada');
  });

  it('is refused when it is no log', async () => {
    writeFileSync(transcript, 'something else\n');
    mkdirSync(path.join(here.project, 'kept'), { recursive: true });
    const { code, stdout, stderr } = await exportIn('--out', 'kept/x.md');
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toContain('[log_malformed]');
    expect(readdirSync(path.join(here.project, 'kept'))).toEqual([]);
  });
});
