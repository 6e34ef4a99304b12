import { join } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts';
import { readRegular } from '../disk/regular-file.ts';
import { type KeyLookup, readPublicKey, type VerifyingKey } from '../trust/keys.ts';
import type { RunKey } from '../trust/payloads.ts';
import { checkDocument } from '../trust/signature.ts';
import type { SignedSubject } from '../trust/signature-line.ts';

/** Returns the subject that thread.json is signed as. */
export function documentSubject(threadId: string): SignedSubject {
  return { kind: 'thread', id: threadId };
}

/** Returns the key of a run without a signing key, if that key has signed its thread.json as it is. */
export function unsignedRunIn(document: JsonObject, threadId: string): VerifyingKey | undefined {
  const { unsigned_run: run } = document;
  const key = isJsonObject(run) ? publicKeyOf(run) : undefined;
  if (key === undefined) return undefined;
  const keys: KeyLookup = {
    find: (id) => (id === key.keyId ? { status: 'trusted', key } : { status: 'unknown' }),
  };
  return checkDocument(document, { keys, subject: documentSubject(threadId) }).ok ? key : undefined;
}

/** Reads thread.json of a run without a signing key, which nothing vouches for; undefined for any other. */
export function readUnsignedRun(folder: string, threadId: string): VerifyingKey | undefined {
  const document = documentIn(folder);
  return document && unsignedRunIn(document, threadId);
}

/** Returns the key of such a run if a trusted key has signed the record since: `folder` is that of the thread. */
export function signedRunKey(
  folder: string,
  { threadId, keys }: { readonly threadId: string; readonly keys: KeyLookup },
): RunKey | undefined {
  const document = documentIn(folder);
  const run = document?.['unsigned_run'];
  if (!document || !isJsonObject(run)) return undefined;
  const { signed } = run;
  const key = publicKeyOf(run);
  if (key === undefined || !isJsonObject(signed) || typeof signed['bytes'] !== 'number') {
    return undefined;
  }
  const expected = { keys, subject: documentSubject(threadId), isRecord: true };
  return checkDocument(document, expected).ok ? { key, bytes: signed['bytes'] } : undefined;
}

/** The refusal of a record that no key of a person has signed. */
export function unsignedRecord(threadId: string): RyeError {
  return new RyeError('unsigned', `the record of ${threadId} is not signed`, {
    hint: `It ran with --unsigned-record. To check it and sign it with your key: rye sign thread ${threadId}`,
    details: { thread_id: threadId },
  });
}

function documentIn(folder: string): JsonObject | undefined {
  try {
    const document = parseJson(readRegular(join(folder, 'thread.json')).toString('utf8'));
    return isJsonObject(document) ? document : undefined;
  } catch {
    return undefined;
  }
}

function publicKeyOf({ public_key: pem, key_id: id }: JsonObject): VerifyingKey | undefined {
  try {
    const key = readPublicKey(typeof pem === 'string' ? pem : '', 'unsigned_run');
    return key.keyId === id ? key : undefined;
  } catch {
    return undefined;
  }
}
