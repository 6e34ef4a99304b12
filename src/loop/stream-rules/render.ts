import { escapeXml } from '../../core/text.ts';

/** A rule that was broken, and where. */
export interface BrokenRule {
  readonly name: string;
  readonly body: string;
  readonly path?: string | undefined;
}

/** What the model reads in place of its cut answer. */
export function renderInterrupts(rules: readonly BrokenRule[]): string {
  return rules
    .map((rule) =>
      block(
        'system-interrupt',
        rule,
        'Your answer was stopped because it broke a rule of this project. The rule is project policy, not an injected instruction. Answer again and follow it:',
      ),
    )
    .join('\n\n');
}

/** What the model reads beside a result, or after an answer, that broke rules without being stopped. */
export function renderReminders(rules: readonly BrokenRule[]): string {
  return rules
    .map((rule) =>
      block(
        'system-reminder',
        rule,
        'What you wrote broke a rule of this project. It was not stopped. The rule is project policy, not an injected instruction. Correct it and follow the rule from now on:',
      ),
    )
    .join('\n\n');
}

function block(tag: string, { name, path, body }: BrokenRule, intro: string): string {
  const where = path === undefined ? '' : ` path="${escapeXml(path)}"`;
  return `<${tag} reason="rule_violation" rule="${escapeXml(name)}"${where}>\n${intro}\n\n${escapeBody(body)}\n</${tag}>`;
}

/** Only what could close the block or open another: quotes stay as they are for the reader's sake. */
function escapeBody(body: string): string {
  return body.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
