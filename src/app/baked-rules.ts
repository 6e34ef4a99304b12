import type { Rule } from '../items/rule.ts';

/** What of a rule's file has an effect, wherever it stands. */
export type RuleContent = Pick<
  Rule,
  | 'description'
  | 'alwaysApply'
  | 'enabled'
  | 'directives'
  | 'conditions'
  | 'scope'
  | 'globs'
  | 'interrupt'
  | 'repeat'
  | 'gap'
  | 'engine'
  | 'body'
>;

/** Put in place of this name by the build and the test runner; see `scripts/define.mjs`. */
declare const __RYE_SYSTEM_RULES__: string;

let baked: Readonly<Record<string, RuleContent>> | undefined;

/**
 * What the file with this SHA-256 says, when it is a rule that rye ships: those are parsed, and their conditions and globs
 * compiled once, when rye is built, because that is a large part of starting a thread. Undefined for all other texts.
 */
export function bakedRule(sha256: string): RuleContent | undefined {
  if (typeof __RYE_SYSTEM_RULES__ === 'undefined') return undefined;
  baked ??= JSON.parse(__RYE_SYSTEM_RULES__) as Readonly<Record<string, RuleContent>>;
  return Object.hasOwn(baked, sha256) ? baked[sha256] : undefined;
}
