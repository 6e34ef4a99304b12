import type { ThreadPlan } from '../../core/plan.ts';

/**
 * Activates skills of threads from outside. A running thread takes them before its next model call; for any other the next run
 * does. At the end of a run all skills are deactivated.
 */
export interface SkillsService {
  /**
   * The model gets the instructions of the skill, which counts as loaded. Errors: `capability_denied` for a skill that the
   * thread may not fetch, `item_not_found`, and a code of the trust policy, such as `unsigned`.
   */
  activate(
    threadId: string,
    skill: string,
    options?: {
      /** The plan of a thread that has not started; it starts under this ID. */
      readonly plan?: Pick<ThreadPlan, 'capabilities'>;
    },
  ): Promise<void>;
  /** The instructions stay in the conversation; what the skill restricts and offers ends. */
  deactivate(threadId: string, skill: string): Promise<void>;
}
