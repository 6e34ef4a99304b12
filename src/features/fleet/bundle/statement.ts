import { isRecord, parseJson } from '../../../kernel/core/json.ts';
import { listOf, NUMBER, nullable, objectOf, oneOf, TEXT } from '../../../kernel/core/shape.ts';
import { canonicalJson } from '../../../kernel/trust/canonical-json.ts';
import { sha256Hex } from '../../../kernel/trust/keys.ts';
import { tampered } from './envelope.ts';
import type { BundleFile } from './tar.ts';

const STATEMENT_TYPE = 'https://in-toto.io/Statement/v1';
const PREDICATE_TYPE = 'https://rye.dev/bundle/v1';
const SUBJECT_NAME = 'bundle.tar';

/** A file that a statement lists. */
export interface StatedFile {
  readonly path: string;
  readonly sha256: string;
  readonly size: number;
  readonly mode: 'plain' | 'executable';
}

/** The content of a bundle and its plan, as its submitter states them. */
export interface BundlePredicate {
  readonly files: readonly StatedFile[];
  /** The plan for which the files were collected. */
  readonly plan_sha256: string;
  /** Fingerprints of the keys that signed the files, sorted. */
  readonly signers: readonly string[];
  /** The commit of the project, if all of the files are in it; else null. */
  readonly git_commit: string | null;
  readonly rye_version: string;
}

/** An in-toto statement about a bundle: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md */
interface Statement {
  readonly _type: typeof STATEMENT_TYPE;
  readonly subject: readonly [
    { readonly name: typeof SUBJECT_NAME; readonly digest: { readonly sha256: string } },
  ];
  readonly predicateType: typeof PREDICATE_TYPE;
  readonly predicate: BundlePredicate;
}

/** Describes the files of a tar, in its order. */
export function statedFiles(files: readonly BundleFile[]): readonly StatedFile[] {
  return files.map(({ path, bytes, isExecutable }) => ({
    path,
    sha256: sha256Hex(bytes),
    size: bytes.length,
    mode: isExecutable ? 'executable' : 'plain',
  }));
}

/** Returns the statement about the tar of this digest. */
export function statementText(digest: string, predicate: BundlePredicate): string {
  const statement: Statement = {
    _type: STATEMENT_TYPE,
    subject: [{ name: SUBJECT_NAME, digest: { sha256: digest } }],
    predicateType: PREDICATE_TYPE,
    predicate,
  };
  return canonicalJson(statement);
}

/** Parses a statement about the tar of this digest. Throws `thread_tampered` for all else. */
export function readStatement(text: string, digest: string): BundlePredicate {
  const statement = parseJson(text);
  const { predicate } = isRecord(statement) ? statement : {};
  if (!PREDICATE.fits(predicate)) throw tampered('its statement has another form');
  // exactly what rye would have stated: no other member, type or subject
  if (text !== statementText(digest, predicate))
    throw tampered('its statement describes another bundle');
  return predicate;
}

const PREDICATE = objectOf<BundlePredicate>({
  files: listOf(
    objectOf<StatedFile>({
      path: TEXT,
      sha256: TEXT,
      size: NUMBER,
      mode: oneOf(['plain', 'executable']),
    }),
  ),
  plan_sha256: TEXT,
  signers: listOf(TEXT),
  git_commit: nullable(TEXT),
  rye_version: TEXT,
});
