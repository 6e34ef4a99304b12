import { spawnSync } from 'node:child_process';
import { closeSync, openSync, readFileSync, readSync, writeSync } from 'node:fs';
import { messageOf, RyeError } from '../core/errors.ts';

const MAX_BYTES = 4096;
const MIN_LENGTH = 10;

/**
 * Returns the passphrase of the signing key: from the file or the open descriptor (`fd:N`) that `RYE_KEY_PASSPHRASE` names, which never
 * holds the passphrase itself, or from the terminal. Throws `key_unsafe` where there is neither.
 */
export function passphraseOf(
  env: Readonly<Record<string, string | undefined>>,
  question = 'Passphrase of the signing key: ',
): string {
  const { RYE_KEY_PASSPHRASE: place = '' } = env;
  if (place === '') return askTerminal(question);
  try {
    const [, descriptor] = /^fd:(\d+)$/.exec(place) ?? [];
    const text = readFileSync(descriptor === undefined ? place : Number(descriptor), 'utf8');
    return text.replace(/\r?\n$/, '');
  } catch (error) {
    throw new RyeError(
      'key_unsafe',
      `the passphrase cannot be read from the place that RYE_KEY_PASSPHRASE names: ${messageOf(error)}`,
      { hint: 'Name a file, or an open descriptor such as fd:3.' },
    );
  }
}

/** Returns a new passphrase, asked for twice at a terminal. Throws `invalid_input` for a short one. */
export function newPassphrase(env: Readonly<Record<string, string | undefined>>): string {
  const passphrase = passphraseOf(env, 'New passphrase of the signing key: ');
  if (passphrase.length < MIN_LENGTH) {
    throw new RyeError('invalid_input', `the passphrase has fewer than ${MIN_LENGTH} characters`, {
      hint: 'Use several words.',
    });
  }
  const isAsked = (env['RYE_KEY_PASSPHRASE'] ?? '') === '';
  if (isAsked && askTerminal('The same again: ') !== passphrase)
    throw new RyeError('invalid_input', 'the two passphrases differ', { hint: 'Try again.' });
  return passphrase;
}

/** Asks on the terminal of the process, without an echo. Nothing is signed before the answer, so it may block. */
function askTerminal(question: string): string {
  let terminal: number;
  try {
    terminal = openSync('/dev/tty', 'r+');
  } catch {
    throw new RyeError(
      'key_unsafe',
      'the signing key needs its passphrase, and there is no terminal to ask at',
      {
        hint: 'Name a file with it: RYE_KEY_PASSPHRASE=FILE, or an open descriptor: RYE_KEY_PASSPHRASE=fd:3',
      },
    );
  }
  const echo = (mode: string): void =>
    void spawnSync('/bin/stty', [mode], { stdio: [terminal, 'ignore', 'ignore'], env: {} });
  try {
    writeSync(terminal, question);
    echo('-echo');
    const buffer = Buffer.alloc(MAX_BYTES);
    const read = readSync(terminal, buffer);
    return buffer.toString('utf8', 0, read).replace(/\r?\n$/, '');
  } finally {
    echo('echo');
    writeSync(terminal, '\n');
    closeSync(terminal);
  }
}
