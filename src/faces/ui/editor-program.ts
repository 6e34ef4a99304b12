import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

type Env = Readonly<Record<string, string | undefined>>;

/** Returns the person's editor, a command with arguments as for git; undefined if none is set. */
export function editorOf(env: Env): string | undefined {
  return [env['VISUAL'], env['EDITOR']].find((one) => one !== undefined && one !== '');
}

/** Opens a file in the editor until it exits; false if it fails. It gets no key of rye. */
export async function runEditor(editor: string, path: string, env: Env): Promise<boolean> {
  const { RYE_SIGNING_KEY: _secret, ...rest } = env;
  const child = spawn('/bin/sh', ['-c', `${editor} "$1"`, 'rye edit', path], {
    stdio: 'inherit',
    env: rest,
  });
  const [code] = (await once(child, 'exit')) as [number | null];
  return code === 0;
}

/** Lets a person edit a text in a private temporary file; undefined if the editor fails. */
export async function editText(
  editor: string,
  { text, name, env }: { readonly text: string; readonly name: string; readonly env: Env },
): Promise<string | undefined> {
  const folder = mkdtempSync(join(tmpdir(), 'rye-edit-'));
  const file = join(folder, name);
  try {
    writeFileSync(file, text, { mode: 0o600 });
    return (await runEditor(editor, file, env)) ? readFileSync(file, 'utf8') : undefined;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
