import { commandsOf, withHeading } from '../../faces/cli/command.ts';
import type { Feature } from '../../faces/cli/feature.ts';
import type { RulesService } from '../../kernel/app/api/rules.ts';
import { lazy } from '../../kernel/app/lazy.ts';

export const rules: Feature = {
  name: 'rules',
  services: (workspace) => ({
    rules: lazy<RulesService>(async () => new (await import('./rules.ts')).Rules(workspace), {}),
  }),
  thread: async () => {
    const { ThreadRules } = await import('./thread-rules.ts');
    return { rules: (workspace, options) => new ThreadRules(workspace, options) };
  },
  problems: { rule: async (file) => await (await import('./problems.ts')).ruleProblems(file) },
  commands: withHeading(
    'Write:',
    ...commandsOf(() => import('./cli/rules.ts'), {
      rules: 'List and test stream rules, or scan files with them',
    }),
  ),
};
