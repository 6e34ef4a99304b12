import { RyeError } from '../core/errors.ts';
import { generateKeyPair, readPrivateKey, type SigningKey } from '../trust/keys.ts';
import type { Workspace } from './workspace.ts';

/** The key of the user: `key_created` is true if there was none before. */
interface SigningKeyState {
  readonly key_id: string;
  readonly key_created: boolean;
}

/** Returns the user's signing key; creates one if there is none. Throws `key_revoked` or `key_unsafe` for one that can't sign. */
export async function ensureKey(workspace: Workspace): Promise<SigningKeyState> {
  try {
    return { key_id: workspace.keyring.signer().keyId, key_created: false };
  } catch (error) {
    if (!(error instanceof RyeError) || error.code !== 'key_missing') throw error;
    return await createKey(workspace);
  }
}

/** Creates the signing key; if another process creates one at the same moment, returns that one. */
async function createKey(workspace: Workspace): Promise<SigningKeyState> {
  try {
    const { key_id } = await workspace.keyring.init();
    return { key_id, key_created: true };
  } catch (error) {
    if (!(error instanceof RyeError) || error.code !== 'already_exists') throw error;
    return { key_id: workspace.keyring.signer().keyId, key_created: false };
  }
}

/** Returns the key that signs items, created if it is missing as for a thread. A dry run gets one that is not kept. */
export async function signingKey(
  workspace: Workspace,
  { dryRun: isDryRun = false }: { readonly dryRun?: boolean },
): Promise<SigningKey> {
  await readySigner(workspace, { isDryRun });
  try {
    return workspace.keyring.signer();
  } catch (error) {
    if (!isDryRun || !(error instanceof RyeError) || error.code !== 'key_missing') throw error;
    return readPrivateKey(generateKeyPair().privatePem, 'a dry run');
  }
}

/**
 * Checks that a thread can be signed before it starts. If the program wants that, creates a missing key and notices its ID;
 * a dry run creates nothing. Throws `key_missing` otherwise.
 */
export async function readySigner(
  workspace: Workspace,
  { isDryRun = false }: { readonly isDryRun?: boolean } = {},
): Promise<void> {
  if (workspace.recordKey !== undefined) return assertKeyless(workspace);
  try {
    workspace.keyring.signer();
  } catch (error) {
    const isMissing = error instanceof RyeError && error.code === 'key_missing';
    if (!isMissing || workspace.options.createKey !== true) throw error;
    if (isDryRun) return;
    const { key_id, key_created } = await ensureKey(workspace);
    if (key_created) workspace.notice(`new signing key ${key_id}`);
  }
}

/** Returns a key for the records of one rye. It is in no file and no environment, and gone with the process. */
export function keyOfRun(): SigningKey {
  return readPrivateKey(generateKeyPair().privatePem, 'the key of a run');
}

/** Refuses a run without a signing key where there is one. */
function assertKeyless({ keyring }: Workspace): void {
  let keyId: string;
  try {
    keyId = keyring.export().key_id;
  } catch (error) {
    if (error instanceof RyeError && error.code === 'key_missing') return;
    throw error;
  }
  throw new RyeError(
    'usage',
    `--unsigned-record is for a run without a signing key: here is ${keyId}`,
    {
      hint: 'Remove --unsigned-record, or run where RYE_SIGNING_KEY and a key of the user space are missing.',
    },
  );
}
