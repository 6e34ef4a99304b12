import type { ErrorInfo } from '../core/errors.ts';
import { compact, type JsonObject, toText } from '../core/json.ts';
import { headChars } from '../core/text.ts';
import { type CostShare, formatSpend, formatTokens } from '../core/usage.ts';
import { fence, inlineCode } from '../export/markdown.ts';
import type { ListedApproval } from './api/approvals.ts';
import type { Rye } from './api/rye.ts';
import type { UndoneFile } from './api/trees.ts';

/** The work of a thread and the threads below it: for a pull request, and for programs. */
export interface Receipt {
  readonly thread_id: string;
  readonly directive: string;
  readonly status: string;
  readonly model: string;
  readonly started_at: string;
  readonly ended_at: string;
  readonly error?: ErrorInfo;
  readonly outputs?: JsonObject;
  /** The last text of the model; absent beside outputs. */
  readonly result?: string;
  /** The cost of the thread and of all threads below it. */
  readonly cost: CostShare;
  /** Number of threads that it started itself. */
  readonly children: number;
  /** Files of the project that differ from what they were before the thread. */
  readonly files: readonly ReceiptFile[];
  /** Tools whose calls may have changed files without a record. */
  readonly other_tools: readonly string[];
  readonly approvals: readonly ReceiptApproval[];
  readonly verification: ReceiptVerification;
}

export interface ReceiptFile {
  readonly path: string;
  readonly change: 'created' | 'changed' | 'deleted';
}

/** A decision of people about one request. */
export interface ReceiptApproval {
  readonly id: string;
  readonly tool: string;
  /** The title of the request. */
  readonly about: string;
  readonly state: string;
  /** Names of the approvers who decided; the key of one whom no policy names. */
  readonly by: readonly string[];
}

export interface ReceiptVerification {
  readonly ok: boolean;
  /** The parts of the record that were checked. */
  readonly checked: readonly string[];
  /** Present if a part differs. */
  readonly problem?: string;
}

/** An undo names the opposite of a change. */
const CHANGES: Readonly<Record<UndoneFile['action'], ReceiptFile['change']>> = {
  removed: 'created',
  restored: 'changed',
  recreated: 'deleted',
  kept: 'changed',
};

/** Makes the receipt of a thread. Throws `thread_not_found`. */
export async function receiptOf(
  { threads, trees, approvals }: Pick<Rye, 'threads' | 'trees' | 'approvals'>,
  id: string,
): Promise<Receipt> {
  const threadId = await threads.resolveId(id);
  const [{ thread, document, children }, verified, asked] = [
    await threads.show(threadId),
    await threads.verify(threadId),
    await approvals.list({ state: 'all' }),
  ];
  const undo = await trees.undoFiles(threadId, { dryRun: true, force: true });
  const { outputs, result, error } = document ?? {};
  const failed = verified.checks.find(({ ok }) => !ok);
  return compact({
    thread_id: threadId,
    directive: thread.directive,
    status: thread.status,
    model: document?.model ?? '',
    started_at: thread.created_at,
    ended_at: thread.updated_at,
    error,
    outputs,
    result: outputs === undefined ? result : undefined,
    cost: thread.cost.total,
    children: children.length,
    files: undo.files.map(({ path, action }) => ({ path, change: CHANGES[action] })),
    other_tools: [...new Set(undo.unrecorded_calls.map(({ tool }) => tool))],
    approvals: asked
      .filter(({ thread_id: own, root_thread_id: root }) => [own, root].includes(threadId))
      .map(approvalOf),
    verification: compact({
      ok: verified.ok,
      checked: verified.checks.map(({ name }) => name),
      problem: failed && (failed.error?.message ?? `${failed.name} differs`),
    }),
  });
}

function approvalOf(one: ListedApproval): ReceiptApproval {
  const { id, tool, preview, state, decisions, approvers } = one;
  const by = decisions
    .filter(({ late }) => !late)
    .map(({ key_id: key }) => approvers.find((each) => each.key_id === key)?.name ?? key);
  return { id, tool, about: preview.title, state, by: [...new Set(by)] };
}

const MAX_OUTPUT = 16 * 1024;

/** Writes a receipt as Markdown. Text of models is in fences or code, so that none of it is markup of the page. */
export function receiptText(receipt: Receipt): string {
  const { thread_id: id, directive, status, cost, children, error, files, verification } = receipt;
  const threads = children === 0 ? '' : ` · ${children + 1} threads or more`;
  const spent = `${formatSpend(cost)} · ${formatTokens(cost.tokens)} tokens`;
  const outputs = Object.entries(receipt.outputs ?? { result: receipt.result ?? '' });
  const checked = `${verification.checked.length} parts of the record`;
  return [
    `### ${inlineCode(directive)}: ${status}`,
    `${inlineCode(id)} · ${inlineCode(receipt.model)} · ${spent}${threads} · ${receipt.started_at} to ${receipt.ended_at}`,
    ...(error ? [`**Error:** ${inlineCode(`${error.message} [${error.code}]`)}`] : []),
    ...outputs.flatMap(([name, value]) => outputText(name, toText(value ?? ''))),
    ...section('Files', files, ({ path, change }) => `- ${change} ${inlineCode(path)}`),
    ...(receipt.other_tools.length === 0
      ? []
      : [`Calls of ${receipt.other_tools.map(inlineCode).join(', ')} may have changed files too.`]),
    ...section('Approvals', receipt.approvals, approvalLine),
    verification.ok
      ? `**Verified:** signatures and hashes of ${checked} hold. Check again: ${inlineCode(`rye verify thread ${id}`)}`
      : `**Not verified:** ${inlineCode(verification.problem ?? '')}. Look: ${inlineCode(`rye verify thread ${id}`)}`,
  ]
    .join('\n\n')
    .concat('\n');
}

function section<T>(
  title: string,
  rows: readonly T[],
  line: (row: T) => string,
): readonly string[] {
  return rows.length === 0 ? [] : [`**${title}**\n\n${rows.map((row) => line(row)).join('\n')}`];
}

function approvalLine({ tool, about, state, by }: ReceiptApproval): string {
  const people = by.length === 0 ? '' : ` by ${by.map(inlineCode).join(', ')}`;
  return `- ${state}${people}: ${inlineCode(about)} (${inlineCode(tool)})`;
}

function outputText(name: string, text: string): readonly string[] {
  if (text.trim() === '') return [];
  const cut = text.length > MAX_OUTPUT ? `${headChars(text, MAX_OUTPUT)}\n…` : text;
  return [`**${name.replaceAll(/[^\w -]/g, ' ')}**\n\n${fence(cut.trimEnd(), 'text')}`];
}
