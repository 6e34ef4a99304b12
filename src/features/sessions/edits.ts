import type { SessionTreeEdits } from '../../kernel/app/api/trees.ts';
import { featuresOf } from '../../kernel/app/feature.ts';
import { Recovery } from '../../kernel/app/recovery.ts';
import { threadEnv, threadPorts } from '../../kernel/app/thread-env.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { featureMissing } from '../../kernel/core/errors.ts';
import { extractThread } from '../../kernel/threads/copied-thread.ts';
import { append, appendEntry } from './append.ts';
import {
  branchThread,
  changeModel,
  changeThinking,
  editContext,
  labelEntry,
  titleThread,
} from './edit.ts';
import { branchWithModelSummary, compactThread } from './offline-summary.ts';
import { replayThread } from './replay.ts';
import { undoFiles } from './undo.ts';

/** Appends to session trees, replays them and imports sessions. */
export function sessionTreeEdits(workspace: Workspace): SessionTreeEdits {
  const ports = async () => await threadPorts(workspace, { allowUnsigned: false });
  const env = async () => await threadEnv(workspace, { allowUnsigned: false });
  return {
    async branch(id, { at, summary, instructions, message, signal = never() }) {
      if (summary !== 'model') {
        return await branchThread(await ports(), id, { at, summary: summary?.text, message });
      }
      return await branchWithModelSummary(await env(), id, { at, instructions, message, signal });
    },
    undoFiles: async (id, request) => await undoFiles(await ports(), id, request),
    extract: async (id, options) => await extractThread(await ports(), id, options),
    label: async (id, entry, label) => await labelEntry(await ports(), id, { entry, label }),
    title: async (id, title) => await titleThread(await ports(), id, title),
    changeModel: async (id, wanted) => await changeModel(await ports(), id, wanted),
    changeThinking: async (id, level) => await changeThinking(await ports(), id, level),
    append: async (id, entry, { triggerTurn = false } = {}) =>
      await appendEntry(await ports(), id, entry, {
        triggerTurn,
        resume: async (threadId) => await new Recovery(workspace).resume({ threadId }),
      }),
    appendCustom: async (id, customType, data) =>
      (await append(await ports(), id, { type: 'custom', customType, data })).events,
    appendCustomMessage: async (id, message) =>
      (await append(await ports(), id, { ...message, type: 'custom_message' })).events,
    editContext: async (id, edit) => await editContext(await ports(), id, edit),
    compact: async (id, { instructions, signal = never() } = {}) =>
      await compactThread(await env(), id, { instructions, signal }),
    replay: async (id, options = {}) => await replayThread(await env(), id, options),
    async importSession(options) {
      const load = featuresOf(workspace).find(({ importer }) => importer !== undefined)?.importer;
      if (load === undefined) throw featureMissing('pi');
      return await (await load())(await env(), options);
    },
  };
}

function never(): AbortSignal {
  return new AbortController().signal;
}
