import type { Problem } from '../../kernel/app/api/items.ts';
import { parseRule } from '../../kernel/items/rule.ts';
import type { Finding } from '../../kernel/items/source.ts';
import type { FoundFile } from '../../kernel/items/spaces-fs.ts';
import { compileGlob } from '../../kernel/tools/glob-pattern.ts';
import { matchProblem } from './match/problem.ts';
import { checkRule } from './stream/rules.ts';
import { parsedRule } from './thread-rules.ts';

/**
 * Conditions that no engine can run: warnings, or errors if none of the rule's is left. A mistake in a `match` is an error:
 * without a part, the rest may mean the opposite.
 */
export async function ruleProblems({
  text,
  id,
  space,
  path,
}: FoundFile): Promise<readonly Problem[]> {
  try {
    const mistake = matchProblem(parseRule(text, path));
    if (mistake) return [problemOf(mistake, path)];
    const { rule } = parsedRule(text, { id, space, path });
    if (rule.conditions.length === 0) return [];
    const { problems } = checkRule(rule, compileGlob);
    const bad = problems.filter((problem) => problem.startsWith('condition '));
    const severity = bad.length === rule.conditions.length ? 'error' : 'warning';
    return bad.map((message) => ({
      severity,
      code: 'rule_malformed',
      message,
      path,
      line: null,
      column: null,
      hint: 'Correct the regular expression. RE2 and, beyond it, JavaScript expressions with the flag u are possible.',
    }));
  } catch {
    return []; // its form is reported already
  }
}

function problemOf({ code, message, location, hint }: Finding, path: string): Problem {
  const { line = null, column = null } = location;
  return { severity: 'error', code, message, path, line, column, hint: hint ?? '' };
}
