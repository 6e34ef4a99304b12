import type { ErrorInfo } from '../../core/errors.ts';
import type { ItemType, SignableType, Space } from '../../core/ids.ts';
import type { JsonObject } from '../../core/json.ts';
import type { SearchAnswer } from '../../core/search.ts';
import type { Problem, SignOutcome, VerifyOutcome } from '../../items/signing-fs.ts';
import type {
  InitOptions,
  KeyRotation,
  KeyInfo as KeySummary,
  OfferedKey,
  RevokeOptions,
  TrustOptions,
} from '../../trust/keys.ts';
import type { FoundLock, GuardChange, Pin } from '../../trust/lock.ts';

export type { GuardChange } from '../../trust/lock.ts';

/** A power file that changed, with lines that begin with `+`, `-`, a space or `…`. */
export interface GuardDiff {
  readonly type: SignableType;
  readonly id: string;
  readonly lines: readonly string[];
}

/** State of an item's signature as lists show it. `program`: the program that opened rye vouches for the item. */
export type SignatureState =
  | 'signed'
  | 'unsigned'
  | 'modified'
  | 'untrusted'
  | 'revoked'
  | 'out_of_scope'
  | 'invalid'
  | 'partial'
  | 'outdated'
  | 'by_thread'
  | 'moved'
  | 'system'
  | 'builtin'
  | 'program';

export interface ItemSummary {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  /** Null for tools that are a part of rye, and for directives from code. */
  readonly path: string | null;
  readonly version: string | null;
  readonly description: string;
  readonly signature: SignatureState;
  /** 1 for a good signature of the older form; absent where no key signed. */
  readonly signature_version?: 1 | 2;
  /** The space whose item of the same id is used instead of this one. */
  readonly shadowed_by: Space | null;
}

export interface FetchedItem {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  /** Null for tools that are a part of rye, whose content is the schema of their input, and for directives from code. */
  readonly path: string | null;
  readonly signature: SignatureState;
  readonly metadata: JsonObject;
  readonly content: string;
  readonly copied_to?: string;
}

export interface ItemsService {
  list(type: ItemType, options?: { space?: Space }): Promise<readonly ItemSummary[]>;
  fetch(
    type: ItemType,
    id: string,
    options?: { copyTo?: 'project' | 'user' },
  ): Promise<FetchedItem>;
  search(
    type: ItemType | 'all',
    query: string,
    options?: { limit?: number; space?: Space; since?: string; contextLines?: number },
  ): Promise<SearchAnswer>;
  /** Without a selector: everything in the project space. */
  validate(selector?: {
    type: SignableType;
    pattern: string;
  }): Promise<{ readonly problems: readonly Problem[]; readonly checked: number }>;
  sign(
    type: SignableType,
    pattern: string,
    options?: { dryRun?: boolean },
  ): Promise<readonly SignOutcome[]>;
  verify(type: SignableType, pattern: string): Promise<readonly VerifyOutcome[]>;
  /** The items of the project, or of the user if both are one folder, whose signature does not count. */
  unsigned(type?: SignableType): Promise<readonly UnsignedItem[]>;
  /** Writes an unsigned item of the project from a template. Throws `already_exists` or `invalid_item_id`. */
  create(type: NewType, id: string): Promise<NewItem>;
  /** Returns the files with this id in all spaces, without reading them. */
  locate(id: string): Promise<readonly LocatedItem[]>;
}

/** An item whose signature does not count. `changes` counts the lines that changed since the last commit. */
export interface UnsignedItem extends VerifyOutcome {
  readonly changes?: { readonly added: number; readonly removed: number };
}

/** Types that `rye new` can write; a hook is an entry of `agent/hooks.yaml`. */
export type NewType = ItemType | 'hook';

/** The file that `rye new` wrote. */
export interface NewItem {
  readonly type: NewType;
  readonly id: string;
  readonly path: string;
}

/** A file of an item. */
export interface LocatedItem {
  readonly type: SignableType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
}

export interface KeysService {
  /** Creates the signing key; refuses with `already_exists` when there is one. */
  init(options?: InitOptions): Promise<KeySummary>;
  list(): Promise<readonly KeySummary[]>;
  /** The public key as PEM text. */
  export(): Promise<{ readonly key_id: string; readonly pem: string }>;
  /** Returns what {@link trust} would write; refuses what it would refuse. `source` names the text in errors. */
  inspect(text: string, options?: TrustOptions & { source?: string }): Promise<OfferedKey>;
  /**
   * Trusts a PEM or a trusted-key TOML, for signing alone unless `purposes` has more. Trusting a key again replaces its
   * scope.
   */
  trust(text: string, options?: TrustOptions): Promise<KeySummary>;
  /** Stops trusting a key. Throws `key_not_found`, or `usage` for the signing key. */
  untrust(keyId: string): Promise<KeySummary>;
  /**
   * Revokes a key: records that it signed before the date still count, items do not. Publishes the revocation in the project
   * if the key is the user's own.
   */
  revoke(keyId: string, options?: RevokeOptions): Promise<KeySummary>;
  /** Obeys the revocation in a file that the key or its successor signed. Throws `signature_invalid` otherwise. */
  importRevocation(text: string): Promise<KeySummary>;
  /**
   * Replaces the signing key. The statement of the old key in the project makes everyone who trusts the old one trust the
   * new one, for the same.
   */
  rotate(): Promise<KeyRotation>;
  /** Encrypts the private key with a new passphrase, from the terminal or `RYE_KEY_PASSPHRASE`; `off`: removes the protection. */
  protect(options?: { readonly off?: boolean | undefined }): Promise<KeySummary>;
  /** Writes the rotations and revocations of the user's own keys to the project; returns the paths of new files. */
  publish(): Promise<readonly string[]>;
}
export type { Problem, SignOutcome, VerifyOutcome } from '../../items/signing-fs.ts';
export type {
  InitOptions as KeyInitOptions,
  KeyInfo as KeySummary,
  KeyRotation,
  OfferedKey,
  RevokeOptions,
  TrustOptions,
} from '../../trust/keys.ts';
export type { KeyPurpose, KeyScope, ScopeRequest } from '../../trust/scope.ts';

/** The lock of a project: which power files its user accepted. */
export interface LockService {
  /** Reports pinned files and differences; changes nothing. */
  status(): Promise<LockReport>;
  /** Pins what is there now, under the user's key. Throws `guard_changed` for files that nothing could obey. */
  accept(): Promise<AcceptedLock>;
}

/** The report of `rye lock`. */
export interface LockReport {
  readonly path: string;
  readonly state: FoundLock['state'];
  /** Version of the lock file; null if there is none that counts. */
  readonly serial: number | null;
  readonly key_id: string | null;
  /** Files pinned by the user space, else by the lock file. */
  readonly files: readonly Pin[];
  readonly changes: readonly GuardChange[];
  /** The lines of each changed file that differ from the accepted text; all of it if that is not known. */
  readonly diffs: readonly GuardDiff[];
  /** Power files that are not obeyed, one sentence each. */
  readonly ignored: readonly string[];
  /** The refusal of runs; null while they are allowed. */
  readonly refusal: ErrorInfo | null;
}

/** The result of `rye lock accept`. */
export interface AcceptedLock {
  readonly path: string;
  readonly serial: number;
  readonly files: readonly Pin[];
  /** The accepted changes. */
  readonly changes: readonly GuardChange[];
}
