import type { Verdict } from './signature.ts';

/** SHA-256 hex of every system file, by its path below the system space's `.ai` with `/` between segments. */
export type SystemManifest = Readonly<Record<string, string>>;

/** Put in place of this name by the build and the test runner; see `scripts/system-manifest.mjs`. */
declare const __RYE_SYSTEM_MANIFEST__: string;

/** The manifest baked into this program. Unbuilt sources have none, and then no system item verifies. */
export function bakedManifest(): SystemManifest {
  return typeof __RYE_SYSTEM_MANIFEST__ === 'undefined'
    ? {}
    : (JSON.parse(__RYE_SYSTEM_MANIFEST__) as SystemManifest);
}

/** Compares a system file with the manifest; a file that the manifest does not have is refused as well. */
export function checkSystemFile(manifest: SystemManifest, path: string, sha256: string): Verdict {
  const expected = manifest[path];
  if (expected === sha256) return { ok: true, by: 'manifest' };
  const detail = expected === undefined ? 'it is not part of this release' : 'it was edited';
  return { ok: false, code: 'system_item_modified', detail };
}
