import type { Rule } from '../items/rule.ts';

/** The members of a rule that do not depend on its location. */
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

/** The build and the test runner define it; see `scripts/define.mjs`. */
declare const __RYE_SYSTEM_RULES__: string;

let baked: Readonly<Record<string, RuleContent>> | undefined;

/**
 * Returns the parsed rule if the SHA-256 is that of a rule that rye ships, else undefined. The build parses these rules and
 * compiles their conditions and globs, which would be a large part of starting a thread.
 */
export function bakedRule(sha256: string): RuleContent | undefined {
  if (typeof __RYE_SYSTEM_RULES__ === 'undefined') return undefined;
  baked ??= JSON.parse(__RYE_SYSTEM_RULES__) as Readonly<Record<string, RuleContent>>;
  return Object.hasOwn(baked, sha256) ? baked[sha256] : undefined;
}
