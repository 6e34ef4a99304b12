import type { ApprovalEnv } from '../../threads/approval-port.ts';
import { needOfCall } from '../../tools/call-need.ts';
import { judgedInput } from '../../tools/judged-input.ts';
import { absolutePaths, readDenier } from '../session-tools.ts';
import type { Workspace } from '../workspace.ts';
import { notifyPeople } from './notify.ts';
import { approvalPolicies } from './policy.ts';
import { describeCall } from './preview.ts';

/** Connects the approvals of threads with the policies, the keys and the files of a project. */
export function approvalEnv(workspace: Workspace): ApprovalEnv['approvals'] {
  return {
    policies: async () => await approvalPolicies(workspace),
    keys: workspace.keyring,
    needOf: needOfCall,
    judge: async ({ tool, input, folder, threadId, settings, listsFiles }) =>
      await judgedInput(tool, input, {
        projectPath: folder,
        threadId,
        allow: absolutePaths(settings.allow_paths, workspace.options.projectPath),
        denies: readDenier(workspace, settings),
        listsFiles,
      }),
    describe: async (call, folder) => describeCall(folder, call),
    notify: async (requested) => await notifyPeople(workspace, requested),
  };
}
