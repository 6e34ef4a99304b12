import { RyeError } from '../../core/errors.ts';
import type { EventDraft, LogEvent } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import { branchDraft, branchWithSummaryDrafts, labelDraft } from '../../log/branch.ts';
import { entryByPrefix, isKnown, pathTo, type SessionTree } from '../../log/tree.ts';
import { THINKING_LEVELS } from '../../providers/provider.ts';
import type { ThreadEnv } from '../ports.ts';
import { configuredModel } from '../prepare/plan-at-head.ts';
import { editLog } from './edit-log.ts';

/** An entry by its id or a unique start of it; `root` is the place before the first entry. */
export function entryAt(tree: SessionTree, reference: string): string | null {
  return reference === 'root' ? null : entryByPrefix(tree, reference).id;
}

export interface BranchRequest {
  /** Entry id, a unique start of one, or `root`. */
  readonly at: string;
  /** Told to the model in the place of the branch that is left. */
  readonly summary?: string | undefined;
  readonly details?: JsonObject | undefined;
  /** A message that the new branch begins with. */
  readonly message?: string | undefined;
}

/** Moves the leaf; returns what was written, nothing where the leaf is there already and nothing is to be added. */
export async function branchThread(
  env: ThreadEnv,
  threadId: string,
  { at, summary, details, message }: BranchRequest,
): Promise<readonly LogEvent[]> {
  return await editLog(env, threadId, ({ tree }) => {
    const target = entryAt(tree, at);
    const moved: readonly EventDraft[] =
      summary === undefined
        ? target === tree.leafId
          ? []
          : [branchDraft(tree, target)]
        : branchWithSummaryDrafts(tree, target, { summary, ...(details ? { details } : {}) });
    return { drafts: [...moved, ...(message === undefined ? [] : [userDraft(message)])] };
  });
}

function userDraft(text: string): EventDraft {
  return {
    event_type: 'message',
    payload: { message: { role: 'user', content: [{ type: 'text', text }] } },
  };
}

/** Names an entry, or clears its name with null or an empty text. */
export async function labelEntry(
  env: ThreadEnv,
  threadId: string,
  { entry, label }: { readonly entry: string; readonly label: string | null },
): Promise<readonly LogEvent[]> {
  const text = label === null || label.trim() === '' ? null : oneLine(label);
  return await appendToTree(env, threadId, (tree) => [
    labelDraft(tree, entryByPrefix(tree, entry).id, text),
  ]);
}

function oneLine(text: string): string {
  return text.trim().replaceAll(/\s*[\r\n]+\s*/g, ' ');
}

/** Puts a title on the thread, by which lists and exports call it. */
export async function titleThread(
  env: ThreadEnv,
  threadId: string,
  title: string,
): Promise<readonly LogEvent[]> {
  return await appendToTree(env, threadId, () => [
    { event_type: 'title', payload: { title: oneLine(title) } },
  ]);
}

/** The model that the thread goes on with: a tier, an alias or an id, refused where it could not run on it. */
export async function changeModel(
  env: ThreadEnv,
  threadId: string,
  wanted: { readonly model: string; readonly provider?: string | undefined },
): Promise<readonly LogEvent[]> {
  return await editLog(env, threadId, async ({ document }) => {
    const { model } = await configuredModel(env, await env.files.readPlan(document), wanted);
    const payload = { provider: model.provider, model: model.id };
    return { drafts: [{ event_type: 'model_change', payload }] };
  });
}

/** How hard the model thinks when the thread goes on. */
export async function changeThinking(
  env: ThreadEnv,
  threadId: string,
  level: string,
): Promise<readonly LogEvent[]> {
  if (!THINKING_LEVELS.some((known) => known === level)) {
    throw new RyeError('usage', `there is no thinking level ${JSON.stringify(level)}`, {
      hint: `Levels are ${THINKING_LEVELS.join(', ')}.`,
    });
  }
  return await appendToTree(env, threadId, () => [
    { event_type: 'thinking_change', payload: { level } },
  ]);
}

/** State that is kept with the thread and never sent to the model. */
export async function appendCustom(
  env: ThreadEnv,
  threadId: string,
  { customType, data }: { readonly customType: string; readonly data: JsonObject },
): Promise<readonly LogEvent[]> {
  return await appendToTree(env, threadId, () => [
    { event_type: 'custom', payload: { custom_type: customType, data } },
  ]);
}

export interface CustomMessage {
  readonly customType: string;
  readonly content: string;
  /** False hides it from people, never from the model. */
  readonly display: boolean;
  /** Never sent to the model. */
  readonly details?: JsonObject;
}

/** Text for the model that is no person's message. */
export async function appendCustomMessage(
  env: ThreadEnv,
  threadId: string,
  { customType, content, display, details }: CustomMessage,
): Promise<readonly LogEvent[]> {
  const payload = { custom_type: customType, content, display, ...(details ? { details } : {}) };
  return await appendToTree(env, threadId, () => [{ event_type: 'custom_message', payload }]);
}

export interface ContextEdit {
  readonly entry: string;
  /** Absent: the entry is left out of the context. */
  readonly content?: string | undefined;
  readonly reason?: string | undefined;
}

/** Replaces or leaves out what one entry of the active branch gives to the context; the entry itself stays. */
export async function editContext(
  env: ThreadEnv,
  threadId: string,
  { entry, content, reason }: ContextEdit,
): Promise<readonly LogEvent[]> {
  return await appendToTree(env, threadId, (tree) => {
    const target = entryByPrefix(tree, entry);
    const isMessage = isKnown(target, 'message') || isKnown(target, 'custom_message');
    if (!isMessage || !pathTo(tree, tree.leafId).includes(target)) {
      throw new RyeError(
        'usage',
        `entry ${target.id} (${target.event_type}) is no message of the active branch`,
        { hint: 'Branch to a leaf below it first, or choose another entry.' },
      );
    }
    const why = reason === undefined ? {} : { reason };
    return [
      {
        event_type: 'context_edit',
        payload:
          content === undefined
            ? { target_id: target.id, action: 'omit', ...why }
            : { target_id: target.id, action: 'replace', content, ...why },
      },
    ];
  });
}

async function appendToTree(
  env: ThreadEnv,
  threadId: string,
  make: (tree: SessionTree) => readonly EventDraft[],
): Promise<readonly LogEvent[]> {
  return await editLog(env, threadId, ({ tree }) => ({ drafts: make(tree) }));
}
