import type { SkillsService } from '../../kernel/app/api/skills.ts';
import { threadPorts } from '../../kernel/app/thread-env.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { isoTime } from '../../kernel/core/clock.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { ThreadPlan } from '../../kernel/core/plan.ts';
import { covers } from '../../kernel/policy/capability.ts';
import { recordOf } from '../../kernel/threads/open-session.ts';
import { skillSource } from './skills.ts';

/** Activates and deactivates skills of threads: the process that runs the thread does it, in the order of arrival. */
export function skillsService(workspace: Workspace): SkillsService {
  const queue = async (threadId: string, skill: string, action: 'activate' | 'deactivate') => {
    const { store, ids, clock } = workspace;
    if (store.appends === undefined) {
      throw new RyeError('storage_failed', 'the store keeps nothing for running threads');
    }
    const draft = JSON.stringify({ event_type: 'skill', payload: { skill, action } });
    await store.appends.add({ entryId: ids.entryId(), threadId, draft }, isoTime(clock.now()));
  };
  return {
    activate: async (threadId, skill, { plan } = {}) => {
      const { capabilities } = plan ?? (await planOf(workspace, threadId));
      await assertActivable(workspace, { threadId, capabilities }, skill);
      await queue(threadId, skill, 'activate');
    },
    deactivate: async (threadId, skill) => {
      await recordOf(workspace, threadId);
      await queue(threadId, skill, 'deactivate');
    },
  };
}

async function planOf(workspace: Workspace, threadId: string): Promise<ThreadPlan> {
  await recordOf(workspace, threadId);
  const { files } = await threadPorts(workspace, { allowUnsigned: false });
  return await files.readPlan(await files.readDocument(threadId));
}

/** Refuses what the thread would refuse later. */
async function assertActivable(
  workspace: Workspace,
  {
    threadId,
    capabilities,
  }: { readonly threadId: string; readonly capabilities: readonly string[] },
  skill: string,
): Promise<void> {
  const need = { verb: 'fetch', item_type: 'skill', item_id: skill } as const;
  if (!covers(capabilities, need)) {
    throw new RyeError('capability_denied', `thread ${threadId} may not fetch the skill ${skill}`, {
      hint: `Grant it in the directive: <fetch><skill>${skill}</skill></fetch>`,
    });
  }
  const { skills, unavailable } = await skillSource(workspace, { allowUnsigned: false }).granted([
    `rye.fetch.skill.${skill}`,
  ]);
  if (skills.some(({ id }) => id === skill)) return;
  throw unavailable[0]?.error ?? new RyeError('item_not_found', `unknown skill ${skill}`);
}
