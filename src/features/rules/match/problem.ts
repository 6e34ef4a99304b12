import { locateInMatch, type Rule } from '../../../kernel/items/rule.ts';
import type { Finding } from '../../../kernel/items/source.ts';
import { astProblem, extensionsIn } from './ast-grep.ts';
import { MatchError, parseMatch } from './parse.ts';

/** Returns why the `match` of a rule cannot be used; undefined if it can. */
export function matchProblem(rule: Rule): Finding | undefined {
  if (rule.match === undefined) return undefined;
  try {
    const node = parseMatch(rule.match, { isSlow: rule.engine === 'js' });
    const problem = astProblem(node, extensionsIn([...rule.scope, ...rule.globs]));
    if (problem === undefined) return undefined;
    return { code: 'rule_malformed', message: problem, location: locateInMatch(rule, []) };
  } catch (error) {
    if (!(error instanceof MatchError)) throw error;
    const { message, at, hint } = error;
    return { code: 'rule_malformed', message, location: locateInMatch(rule, at), hint };
  }
}
