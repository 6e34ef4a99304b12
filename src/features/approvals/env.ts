import { spawn } from 'node:child_process';
import { createHash, createHmac } from 'node:crypto';
import {
  closeSync,
  existsSync,
  openSync,
  readFileSync,
  readSync,
  realpathSync,
  statSync,
} from 'node:fs';
import { dirname, normalize, relative, resolve, sep } from 'node:path';
import { approvalPolicies } from '../../kernel/app/approval-policies.ts';
import { absolutePaths, readDenier } from '../../kernel/app/session-tools.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import type {
  ApprovalPreview,
  ApprovalSubject,
  RequestedApproval,
} from '../../kernel/core/approval.ts';
import { messageOf, systemCodeOf } from '../../kernel/core/errors.ts';
import { compact, isRecord, type JsonObject } from '../../kernel/core/json.ts';
import { diffOf } from '../../kernel/core/line-diff.ts';
import { planText, readPlan } from '../../kernel/core/presented-plan.ts';
import { headChars } from '../../kernel/core/text.ts';
import { realPlace } from '../../kernel/disk/inside.ts';
import type { ReviewedCall } from '../../kernel/loop/ports.ts';
import type { Notification } from '../../kernel/policy/approvals.ts';
import { webFetch } from '../../kernel/startup/web-fetch.ts';
import type { ApprovalEnv } from '../../kernel/threads/approval-port.ts';
import { planProblem } from '../../kernel/threads/run/plan-cover.ts';
import { applyEdit } from '../../kernel/tools/builtin/edit.ts';
import { needOfCall } from '../../kernel/tools/call-need.ts';
import { compileGlob } from '../../kernel/tools/glob-pattern.ts';
import { judgedInput } from '../../kernel/tools/judged-input.ts';
import { childEnvironment } from '../../kernel/tools/process.ts';
import { listedApproval } from './listed.ts';

/** Characters of a preview and of an input. No person judges more than this. */
const MAX_CHARS = 64 * 1024;
/** Files above this size are not compared. */
const MAX_BYTES = 4 * 1024 * 1024;

/** The built-in shell: its command line represents the call. */
const SHELL = 'rye/bash';

interface Described {
  readonly preview: ApprovalPreview;
  readonly files: ApprovalSubject['files'];
  /** Why no person can judge the call. */
  readonly problem?: string;
}

/** Returns what people are shown about a call: a diff, a command of the shell or a question, else its whole input. */
function describeCall(projectPath: string, call: ReviewedCall): Described {
  const described = describe(projectPath, call);
  const chars = Math.max(described.preview.text.length, JSON.stringify(call.input).length);
  if (chars <= MAX_CHARS) return described;
  const text = headChars(described.preview.text, MAX_CHARS);
  return {
    ...described,
    preview: { ...described.preview, text },
    problem: `the call has ${chars} characters, and a person can judge at most ${MAX_CHARS}. Make several smaller calls.`,
  };
}

function describe(projectPath: string, { tool, input, need }: ReviewedCall): Described {
  if (tool.presentsPlan) return describePlan(input);
  const question = tool.question?.(input);
  if (question) {
    const { text, schema } = question;
    return { preview: { title: 'Question', format: 'question', text, schema }, files: [] };
  }
  const { files, preview } = describeFiles(projectPath, { tool, input });
  if (preview) return { preview, files };
  const { command } = input;
  if (tool.id === SHELL && typeof command === 'string') {
    return { preview: { title: 'Run a command', format: 'command', text: command }, files };
  }
  const { verb, item_type: type, item_id: id = '' } = need;
  const title = `${verb} ${type} ${id}`.trim();
  return { preview: { title, format: 'input', text: JSON.stringify(input, null, 2) }, files };
}

/** Returns the files that a call would change, with a diff where one can be made. */
function describeFiles(
  projectPath: string,
  { tool, input }: Pick<ReviewedCall, 'tool' | 'input'>,
): Pick<Described, 'files'> & Partial<Pick<Described, 'preview'>> {
  const paths = writtenBy(tool, input);
  const files = paths.map((path) => boundFile(projectPath, path));
  const [path] = paths;
  const before = path === undefined ? undefined : readBytes(projectPath, path);
  const after = path === undefined ? undefined : contentAfter(tool.id, input, before);
  const isNew = files.at(0)?.sha256 === null;
  // a long file is bound by its hash, but not compared
  const isComparable = isNew || before !== undefined;
  if (path === undefined || after === undefined || !isComparable) return { files };
  const title = `${isNew ? 'Create' : 'Change'} ${namedFile(files[0], path)}`;
  const text = diffText(before?.toString('utf8') ?? '', after);
  return { files, preview: { title, format: 'diff', text } };
}

function describePlan(input: JsonObject): Described {
  const plan = readPlan(input);
  const preview = { title: 'Plan', format: 'plan' as const, text: planText(plan) };
  return { preview, files: [], ...compact({ problem: planProblem(plan, compileGlob) }) };
}

type BoundFile = ApprovalSubject['files'][number];

/** Returns a file as a request names it: also by the place where the bytes would be, through links too. */
function boundFile(projectPath: string, path: string): BoundFile {
  return { path, sha256: hashOf(projectPath, path), ...placeOf(projectPath, path) };
}

/** The real path in the project, and the device and inode of its folder; none if they are out of reach. */
function placeOf(projectPath: string, path: string): Pick<BoundFile, 'real' | 'folder'> {
  const target = resolve(projectPath, path);
  try {
    const real = realPlace(target);
    const { dev, ino } = statSync(existingFolder(dirname(real)));
    const inside = relative(realpathSync(projectPath), real).split(sep).join('/');
    return { real: inside, folder: `${dev}:${ino}` };
  } catch (error) {
    if (systemCodeOf(error) === undefined) throw error;
    return {};
  }
}

function existingFolder(path: string): string {
  return existsSync(path) ? path : existingFolder(dirname(path));
}

/** Returns `out/a.yml (really .github/a.yml)` for a path that leads elsewhere. */
function namedFile(file: BoundFile | undefined, path: string): string {
  const real = file?.real;
  return real === undefined || real === normalize(path).split(sep).join('/')
    ? path
    : `${path} (really ${real})`;
}

function writtenBy(tool: ReviewedCall['tool'], input: JsonObject): readonly string[] {
  try {
    return tool.writes?.(input) ?? [];
  } catch {
    return [];
  }
}

const PIECE_BYTES = 1024 * 1024;

/** The SHA-256 of a file of the project now, of any size; null if there is none. */
function hashOf(projectPath: string, path: string): string | null {
  const real = realFile(projectPath, path);
  if (real === undefined) return null;
  const file = openSync(real, 'r');
  try {
    const hash = createHash('sha256');
    const piece = Buffer.alloc(PIECE_BYTES);
    for (let read = readSync(file, piece); read > 0; read = readSync(file, piece)) {
      hash.update(piece.subarray(0, read));
    }
    return hash.digest('hex');
  } finally {
    closeSync(file);
  }
}

/** The bytes of a file of the project now; undefined if there is none, or if it is too long to be compared. */
function readBytes(projectPath: string, path: string): Buffer | undefined {
  const real = realFile(projectPath, path);
  return real !== undefined && statSync(real).size <= MAX_BYTES ? readFileSync(real) : undefined;
}

/** The real path of a regular file of the project; undefined if there is none. */
function realFile(projectPath: string, path: string): string | undefined {
  try {
    const real = realpathSync(resolve(projectPath, path));
    const isInside = real.startsWith(realpathSync(projectPath) + sep);
    return isInside && statSync(real).isFile() ? real : undefined;
  } catch (error) {
    if (systemCodeOf(error) === undefined) throw error;
    return undefined;
  }
}

/** The text that a write or an edit would leave; undefined if it cannot be told. */
function contentAfter(
  toolId: string,
  input: JsonObject,
  before: Buffer | undefined,
): string | undefined {
  if (toolId === 'rye/file-system/write') {
    return typeof input['content'] === 'string' ? input['content'] : undefined;
  }
  const edits = Array.isArray(input['edits']) ? input['edits'] : [input];
  if (!toolId.startsWith('rye/file-system/') || before === undefined) return undefined;
  let text = before.toString('utf8');
  for (const edit of edits) {
    const next = isRecord(edit) ? edited(text, edit) : undefined;
    if (next === undefined) return undefined;
    text = next;
  }
  return text;
}

function edited(text: string, edit: Record<string, unknown>): string | undefined {
  try {
    const { old_string: old, new_string: now, replace_all: all } = edit;
    if (typeof old !== 'string' || typeof now !== 'string') return undefined;
    const result = applyEdit(text, { oldString: old, newString: now, replaceAll: all === true });
    return result.ok ? result.content : undefined;
  } catch {
    return undefined;
  }
}

function diffText(before: string, after: string): string {
  const signs = { add: '+', remove: '-', same: ' ', gap: '…' } as const;
  return diffOf(before, after)
    .map(({ kind, text }) => `${signs[kind]}${text}`)
    .join('\n');
}

const TIMEOUT_MS = 10_000;

/** Tells the programs and servers of the policies about a request. A failure is only a notice. No program decides here. */
async function notifyPeople(workspace: Workspace, requested: RequestedApproval): Promise<void> {
  try {
    const all = (await approvalPolicies(workspace)).flatMap(({ notify }) => notify);
    await Promise.all(all.map(async (one) => await tell(workspace, one, requested)));
  } catch (error) {
    workspace.notice(`a notification about an approval failed: ${messageOf(error)}`);
  }
}

async function tell(
  workspace: Workspace,
  notification: Notification,
  requested: RequestedApproval,
): Promise<void> {
  const body = JSON.stringify({ event: 'approval_requested', approval: listedApproval(requested) });
  try {
    if ('command' in notification) await runCommand(workspace, notification.command, body);
    else await post(workspace, notification, body);
  } catch (error) {
    const { id } = requested.request;
    workspace.notice(`the notification about ${id} failed: ${messageOf(error)}`);
  }
}

async function runCommand(
  { options }: Workspace,
  [program = '', ...args]: readonly string[],
  body: string,
): Promise<void> {
  const { projectPath, env } = options;
  const {
    RYE_THREAD_ID: _thread,
    RYE_PARENT_THREAD_ID: _parent,
    ...plain
  } = childEnvironment(env, {
    projectPath,
    threadId: '',
  });
  await new Promise<void>((settle, reject) => {
    const child = spawn(program, args, {
      cwd: projectPath,
      env: plain,
      stdio: ['pipe', 'ignore', 'ignore'],
      timeout: TIMEOUT_MS,
      killSignal: 'SIGKILL',
    });
    child.once('error', reject);
    child.once('exit', (code) =>
      code === 0 ? settle() : reject(new Error(`${program} ended with ${code ?? 'a signal'}`)),
    );
    child.stdin.on('error', () => undefined);
    child.stdin.end(body);
  });
}

/** Sends the request with an HMAC-SHA-256 of its body, so that the receiver knows the sender. */
async function post(
  { options }: Workspace,
  { webhook, secret }: Extract<Notification, { readonly webhook: string }>,
  body: string,
): Promise<void> {
  const name = secret?.startsWith('env:') === true ? secret.slice('env:'.length) : undefined;
  const key = name === undefined ? secret : options.env[name];
  if (secret !== undefined && (key === undefined || key === '')) {
    throw new Error(`the variable ${name ?? ''} with the secret is not set`);
  }
  const signature =
    key === undefined ? undefined : createHmac('sha256', key).update(body).digest('hex');
  const request = {
    method: 'POST',
    body,
    redirect: 'error' as const,
    signal: AbortSignal.timeout(TIMEOUT_MS),
    headers: {
      'content-type': 'application/json',
      ...(signature === undefined ? {} : { 'x-rye-signature': `sha256=${signature}` }),
    },
  };
  const response = await webFetch(webhook, request, options.env);
  if (!response.ok) throw new Error(`${new URL(webhook).host} answered ${response.status}`);
}

/** Connects the approvals of threads with the policies, the keys and the files of a project. */
export function approvalEnv(workspace: Workspace): ApprovalEnv['approvals'] {
  return {
    policies: async () => await approvalPolicies(workspace),
    keys: workspace.keyring,
    glob: compileGlob,
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
