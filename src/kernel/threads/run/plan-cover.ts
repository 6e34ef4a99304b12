import { posix } from 'node:path';
import type { ApprovalRequest, ApprovalScope, ApprovalSubject, Ask } from '../../core/approval.ts';
import type { CapabilityNeed } from '../../core/capability.ts';
import { messageOf } from '../../core/errors.ts';
import { type JsonObject, jsonEquals } from '../../core/json.ts';
import { type PresentedPlan, readPlan } from '../../core/presented-plan.ts';
import type { ReviewedCall } from '../../loop/ports.ts';
import { isAgreedBy } from '../../policy/approval-judgement.ts';
import { LIMIT_ID } from './approval-subject.ts';

/** Compiles a glob over paths to its test. Throws `pattern_invalid`. */
export type CompileGlob = (pattern: string) => (path: string) => boolean;

const SHELL = 'rye/bash';
const FILE_TOOLS = 'rye/file-system/';

/** A call, as far as a plan lists calls. */
export interface PlannedCall {
  readonly tool: string;
  readonly input: JsonObject;
  readonly need: CapabilityNeed;
  /** The paths that it changes, by each name that they have. */
  readonly files: readonly string[];
}

/**
 * The scope that a decision about the call needs in order to reach as far as the plan does: `arguments` for a command line that
 * the plan spells out, `tool` for everything else that it lists. Undefined: the call is outside of the plan.
 */
export function scopeInPlan(
  plan: PresentedPlan,
  call: PlannedCall,
  compile: CompileGlob,
): ApprovalScope | undefined {
  const { tool, input, need, files } = call;
  if (need.verb !== 'execute') return undefined;
  if (need.item_type === 'directive') return listed(plan.directives, need.item_id);
  if (need.item_type !== 'tool' || need.item_id !== tool) return undefined;
  if (tool === SHELL) {
    const { command } = input;
    return typeof command === 'string' && plan.commands.includes(command) ? 'arguments' : undefined;
  }
  if (!tool.startsWith(FILE_TOOLS)) return listed(plan.tools, tool);
  const isInside =
    files.length > 0 && files.every((file) => isPlannedFile(plan.files, file, compile));
  return isInside ? 'tool' : undefined;
}

function listed(ids: readonly string[], id: string | undefined): ApprovalScope | undefined {
  return id !== undefined && ids.includes(id) ? 'tool' : undefined;
}

function isPlannedFile(globs: readonly string[], path: string, compile: CompileGlob): boolean {
  return globs.some((glob) => hidesNothing(glob, path) && matches(glob, path, compile));
}

/** True if the glob spells out each name of the path that starts with a dot: no star reaches `.git` or `.ai`. */
function hidesNothing(glob: string, path: string): boolean {
  const written = glob.split('/');
  return path.split('/').every((name) => !name.startsWith('.') || written.includes(name));
}

function matches(glob: string, path: string, compile: CompileGlob): boolean {
  try {
    return compile(glob)(path);
  } catch {
    return false; // no person approves such a plan
  }
}

/** Why no person can approve a plan; undefined if one can. */
export function planProblem(
  { files, tools }: PresentedPlan,
  compile: CompileGlob,
): string | undefined {
  for (const glob of files) {
    try {
      compile(glob);
    } catch (error) {
      return `a file of the plan cannot be read: ${messageOf(error)}`;
    }
  }
  const vague = tools.find((id) => id === SHELL || id.startsWith(FILE_TOOLS));
  if (vague === undefined) return undefined;
  const member = vague === SHELL ? 'commands' : 'files';
  return `the plan names the tool ${vague}. List what it would do in "${member}" instead.`;
}

/** Returns the plan's name of a path that a call gives. */
export function plainPath(path: string): string {
  return posix.normalize(path);
}

/** The demand of a plan on the calls outside of it. */
export const OUTSIDE_PLAN: Ask = { source: 'plan', reason: 'It is outside of the approved plan.' };

/** True if an approved plan bounds the call: it may change something, and a person has not to decide about it anyway. */
export function isBounded({ tool, input }: Pick<ReviewedCall, 'tool' | 'input'>): boolean {
  return !tool.traits.reads_only && tool.id !== LIMIT_ID && tool.question?.(input) === undefined;
}

/** A plan that people have approved, and whose call has run. */
export interface StartedPlan {
  readonly request: ApprovalRequest;
  /** The plan as they approved it. */
  readonly input: JsonObject;
  /** The keys whose decisions count for the call in question too. */
  readonly keys: readonly string[];
  /** USD that the thread had spent by then. */
  readonly spentUsd: number;
}

/**
 * True if what people decided about a plan is enough for a call: the plan lists it, its money lasts, everyone who would have to
 * agree to the call has agreed to the plan, and the rules let a decision reach so far.
 */
export function isInPlan(
  { request, input, keys, spentUsd }: StartedPlan,
  {
    call,
    subject,
    spentUsd: now,
  }: {
    readonly call: Pick<ReviewedCall, 'tool' | 'input' | 'need'>;
    readonly subject: ApprovalSubject;
    readonly spentUsd: number;
  },
  compile: CompileGlob,
): boolean {
  const plan = readPlan(input);
  const files = subject.files.flatMap(({ path, real }) => [
    plainPath(path),
    real ?? plainPath(path),
  ]);
  const { input: ran, need } = call;
  const scope = scopeInPlan(plan, { tool: call.tool.id, input: ran, need, files }, compile);
  return (
    scope !== undefined &&
    subject.scopes.includes(scope) &&
    SAME.every((member) => jsonEquals(request[member], subject[member])) &&
    isAgreedBy(subject, keys) &&
    now - spentUsd + (subject.worst_case_usd ?? 0) <= plan.costUsd
  );
}

const SAME = [
  'thread_id',
  'cwd',
  'sandbox',
  'worker_key_id',
  'plan_sha256',
] as const satisfies readonly (keyof ApprovalSubject)[];
