import type { Problem } from '../../kernel/app/api/items.ts';
import type { FoundFile } from '../../kernel/items/spaces-fs.ts';
import { compileGlob } from '../../kernel/tools/glob-pattern.ts';
import { checkRule } from './stream/rules.ts';
import { parsedRule } from './thread-rules.ts';

/** Conditions that no engine can run: warnings, or errors if none of the rule's is left. */
export async function ruleProblems({
  text,
  id,
  space,
  path,
}: FoundFile): Promise<readonly Problem[]> {
  try {
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
