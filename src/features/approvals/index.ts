import { commandsOf, withHeading } from '../../faces/cli/command.ts';
import type { Feature } from '../../faces/cli/feature.ts';
import type { ApprovalsService } from '../../kernel/app/api/approvals.ts';
import { lazy } from '../../kernel/app/lazy.ts';

export const approvals: Feature = {
  name: 'approvals',
  services: (workspace) => ({
    approvals: lazy<ApprovalsService>(
      async () => new (await import('./service.ts')).ApprovalRequests(workspace),
      { watch: 'stream' },
    ),
  }),
  thread: async () => {
    const [{ approvalEnv }, { attend }] = await Promise.all([
      import('./env.ts'),
      import('./attention.ts'),
    ]);
    return {
      approvals: (workspace) => ({
        env: approvalEnv(workspace),
        attend: (attendant) => attend(workspace, attendant),
      }),
    };
  },
  commands: withHeading(
    'Decide:',
    ...commandsOf(() => import('./cli/approvals.ts'), {
      approvals: 'List requests that wait for a decision',
    }),
    ...commandsOf(() => import('./cli/decide.ts'), {
      approve: 'Approve requests with your signature',
      deny: 'Deny requests with your signature',
      answer: 'Answer a question with your signature',
    }),
  ),
};
