import { join } from 'node:path';
import { assertOutsideThreads } from '../../kernel/app/ancestry.ts';
import type {
  ApprovalsService,
  ApprovalVerification,
  DecidedApproval,
  DecideRequest,
  ListedApproval,
  WatchApprovals,
} from '../../kernel/app/api/approvals.ts';
import { approvalPolicies } from '../../kernel/app/approval-policies.ts';
import { readThreadConfig } from '../../kernel/app/settings.ts';
import { threadEnv } from '../../kernel/app/thread-env.ts';
import { threadFiles } from '../../kernel/app/thread-files.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import type {
  ApprovalDecision,
  ApprovalRequest,
  ApprovalState,
  SignedDecision,
} from '../../kernel/core/approval.ts';
import { capabilityOf } from '../../kernel/core/capability.ts';
import { isoTime } from '../../kernel/core/clock.ts';
import { keptHunks } from '../../kernel/core/edit-hunks.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { compact, type JsonObject, jsonEquals } from '../../kernel/core/json.ts';
import {
  ableKeys,
  decisionProblem,
  type EditDemand,
  judgeDecisions,
} from '../../kernel/policy/approval-judgement.ts';
import type { StoredApproval } from '../../kernel/storage/store.ts';
import { chainEnd } from '../../kernel/threads/family/children.ts';
import { resumeInBackground } from '../../kernel/threads/family/resume-process.ts';
import { DecisionTaker } from '../../kernel/threads/family/take-up.ts';
import type { ThreadEnv } from '../../kernel/threads/ports.ts';
import { plainDecisions } from '../../kernel/threads/run/approval-history.ts';
import { demandOf, judgeIn } from '../../kernel/threads/run/approval-subject.ts';
import { needOfCall } from '../../kernel/tools/call-need.ts';
import { validateInput } from '../../kernel/tools/schema.ts';
import {
  canonicalSha256,
  type DecisionFault,
  decisionFault,
  requestSha256,
  signDecision,
} from '../../kernel/trust/approval.ts';
import { approvalEnv } from './env.ts';
import { listedApproval } from './listed.ts';
import { verifyApproval } from './verify.ts';

const LOOK_MS = 500;
/** Time in which the process that resumes a thread takes it; a slower one is not waited for. */
const TAKEN_MS = 10_000;
const TAKEN_LOOK_MS = 30;

/** The requests of a project, for the people who decide them. */
export class ApprovalRequests implements ApprovalsService {
  readonly #workspace: Workspace;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  async list({
    threadId,
    state = 'pending',
  }: {
    readonly threadId?: string;
    readonly state?: ApprovalState | 'all';
  } = {}): Promise<readonly ListedApproval[]> {
    const { store } = this.#workspace;
    const wanted = state === 'all' ? undefined : state === 'expired' ? undefined : state;
    const stored = await store.approvals.list(compact({ threadId, state: wanted }));
    return stored
      .map((one) => this.#listed(one))
      .filter((one) => state === 'all' || one.state === state);
  }

  async show(id: string): Promise<ListedApproval> {
    return this.#listed(await this.#find(id));
  }

  async decide(request: DecideRequest): Promise<DecidedApproval> {
    const { store, clock, keyring, options } = this.#workspace;
    await assertOutsideThreads(store, options.env);
    const found = await this.#find(request.id);
    assertGenuine(found);
    const key = keyring.signer();
    const now = clock.now();
    const decision = decisionOf(found, withHunks(found, request), now);
    const isOver = found.state !== 'pending' || isoTime(now) >= found.request.expires_at;
    if (!isOver) await this.#assertFits(found, { ...decision, key_id: key.keyId });
    const signed = signDecision(decision, key);
    const fault = isOver ? undefined : this.#faultOf(found, signed);
    if (fault !== undefined) throw notCounted(found, `${fault}: ${key.keyId}`);
    const stored = (await store.approvals.decide(found.request.id, signed, isoTime(now))) ?? found;
    // another person may have decided since it was read
    if (isOver || isLate(stored, signed)) throw over(stored, isoTime(now));
    return await this.#settle(stored, request.resume !== false, isoTime(now));
  }

  /** Closes a request that its decisions decide, and resumes its thread. */
  async #settle(stored: StoredApproval, mayResume: boolean, now: string): Promise<DecidedApproval> {
    const { store, keyring } = this.#workspace;
    const { id, thread_id: threadId, worker_key_id: worker } = stored.request;
    const decisions = plainDecisions(this.#counted(stored));
    const inputs = decisions.map(({ input }) => input);
    const demands = await demandsOfEdits(this.#workspace, stored, inputs);
    const judgement = judgeDecisions(stored, decisions, demands);
    const { state } = judgement;
    const isDecided = state !== 'pending';
    if (state !== 'pending') await store.approvals.close(id, state, now);
    // under another key it would be another run, to which the decision does not apply
    const isOwn = worker === keyring.signer().keyId;
    const resumed =
      isDecided &&
      mayResume &&
      (isOwn
        ? await this.#resume(threadId)
        : (await this.#workspace.fleet?.resume(threadId)) === true);
    return {
      ...this.#listed((await store.approvals.get(id)) ?? stored),
      missing: judgement.state === 'pending' ? judgement.missing : 0,
      resumed,
      ...(isDecided && !isOwn && !resumed ? { awaits_owner: true as const } : {}),
    };
  }

  async verify(id: string): Promise<ApprovalVerification> {
    return await verifyApproval(this.#workspace, await this.#find(id));
  }

  async *watch({ signal, onResume }: WatchApprovals = {}): AsyncIterable<ListedApproval> {
    const seen = new Set<string>();
    const env = onResume && (await threadEnv(this.#workspace, { allowUnsigned: false }));
    const taker = env && new DecisionTaker(env);
    for (;;) {
      if (signal?.aborted) return;
      for (const one of await this.list()) {
        if (seen.has(one.id)) continue;
        seen.add(one.id);
        yield one;
      }
      for (const id of (await taker?.takeUpAll()) ?? []) onResume?.(id);
      await this.#workspace.clock.sleep(LOOK_MS, signal);
    }
  }

  async #find(part: string): Promise<StoredApproval> {
    const { approvals } = this.#workspace.store;
    const exact = await approvals.get(part);
    if (exact) return exact;
    const ids = part === '' ? [] : await approvals.findIds(part, 2);
    const [only, other] = ids;
    const found = only !== undefined && other === undefined ? await approvals.get(only) : undefined;
    if (found) return found;
    if (other !== undefined) {
      throw new RyeError('ambiguous', `several requests begin with ${part}: ${ids.join(', ')}`, {
        hint: 'Give more characters of the id.',
      });
    }
    throw new RyeError('approval_not_found', `unknown request ${JSON.stringify(part)}`, {
      hint: 'Run: rye approvals list',
      details: { id: part },
    });
  }

  /** Refuses a decision that could never count, before it is signed. */
  async #assertFits(found: StoredApproval, decision: ApprovalDecision): Promise<void> {
    const { keyring } = this.#workspace;
    const problem = decisionProblem(found, decision);
    if (problem !== undefined) throw notCounted(found, problem);
    const { input, answer, constraints } = decision;
    assertBounds(constraints);
    if (decision.decision === 'answer') {
      const schema = found.preview.schema ?? {};
      await assertMatches({ answer: schema }, { answer: answer ?? null }, 'the answer');
    }
    if (input !== undefined) {
      const schema = await this.#schemaOf(found);
      if (schema) await assertValid(schema, input, 'the input');
      await assertMayEdit(this.#workspace, found, decision);
    }
    keyring.signer();
  }

  async #schemaOf({ request }: StoredApproval): Promise<JsonObject | undefined> {
    const files = threadFiles(this.#workspace);
    const plan = await files.readPlan(await files.readDocument(request.thread_id));
    return plan.tools.find(({ id }) => id === request.tool)?.input_schema;
  }

  #counted(stored: StoredApproval) {
    return stored.decisions
      .filter(({ late }) => !late)
      .map(({ signed }) => signed)
      .filter((signed) => this.#faultOf(stored, signed) === undefined);
  }

  #faultOf(stored: StoredApproval, signed: SignedDecision): DecisionFault | undefined {
    const { keyring } = this.#workspace;
    return (
      decisionFault(signed, stored.request, keyring) ??
      decisionFault(signed, aboutEdit(stored, signed.decision.input), keyring)
    );
  }

  #listed(stored: StoredApproval): ListedApproval {
    const isExpired =
      stored.state === 'pending' &&
      isoTime(this.#workspace.clock.now()) >= stored.request.expires_at;
    return listedApproval(isExpired ? { ...stored, state: 'expired' } : stored);
  }

  async #resume(threadId: string): Promise<boolean> {
    const { clock } = this.#workspace;
    const env = await threadEnv(this.#workspace, { allowUnsigned: false });
    const before = await runNow(env, threadId);
    const resumer = await resumeInBackground(env, threadId);
    if (!resumer) return false;
    // a command that looks at the thread next sees that it runs
    const deadline = clock.monotonic() + TAKEN_MS;
    while (clock.monotonic() < deadline) {
      const hasEnded = resumer.hasEnded();
      if ((await runNow(env, threadId)) !== before) return true;
      if (hasEnded) {
        const log = join(env.files.folder(threadId), 'spawn.log');
        env.onNotice(`thread ${threadId} was not resumed; ${log} tells why`);
        return false;
      }
      await clock.sleep(TAKEN_LOOK_MS);
    }
    return true;
  }
}

/** Returns the run that the end of a chain is in, as its thread.json names it: a resume that is refused leaves none there. */
async function runNow(env: ThreadEnv, threadId: string): Promise<string> {
  const last = await chainEnd(env.store.registry, threadId);
  if (!last) return '';
  const { runs } = await env.files.readDocument(last.thread_id);
  return `${last.thread_id}#${runs?.length ?? 1}`;
}

/** Returns a decision about single edits as one that gives the input: a decision about all of them leaves it as it is. */
function withHunks(
  { request: { tool }, input }: StoredApproval,
  { hunks, ...given }: DecideRequest,
): DecideRequest {
  if (hunks === undefined) return given;
  const kept = keptHunks({ tool, input }, hunks);
  return jsonEquals(kept, input) ? given : { ...given, input: kept };
}

/** Returns a decision without its key. */
function decisionOf(
  { request, request_sha256: sha256 }: StoredApproval,
  given: DecideRequest,
  now: number,
): Omit<ApprovalDecision, 'key_id'> {
  const { decision, scope = 'once', forMs, uses, spendUsd, comment = '', input, answer } = given;
  return compact({
    format: 1 as const,
    approval_id: request.id,
    thread_id: request.thread_id,
    request_sha256: sha256,
    decision,
    scope,
    constraints: compact({
      until: forMs === undefined ? undefined : isoTime(now + forMs),
      uses,
      spend_usd: spendUsd,
    }),
    comment,
    input,
    answer,
    decided_at: isoTime(now),
  });
}

/** Refuses a row that does not match its own hash: only the log proves a request. */
function assertGenuine({ request, request_sha256: sha256, input, preview }: StoredApproval): void {
  const isSame =
    requestSha256(request) === sha256 &&
    canonicalSha256(input) === request.input_sha256 &&
    canonicalSha256(preview) === request.preview_sha256;
  if (isSame) return;
  throw new RyeError('approval_invalid', `the stored request ${request.id} was changed`, {
    hint: `Check the thread: rye verify thread ${request.thread_id}`,
  });
}

/** Refuses bounds that cover no call at all. */
function assertBounds({ uses = 1, spend_usd: spend = 0 }: ApprovalDecision['constraints']): void {
  if (Number.isSafeInteger(uses) && uses >= 1 && Number.isFinite(spend) && spend >= 0) return;
  throw new RyeError('invalid_input', 'uses must be at least 1, and spend 0 or more', {
    hint: 'To refuse the call, run: rye deny ID --comment TEXT',
  });
}

function isLate({ decisions }: StoredApproval, { signature }: SignedDecision): boolean {
  return decisions.some((one) => one.late && one.signed.signature === signature);
}

function notCounted({ request }: StoredApproval, problem: string): RyeError {
  const names = request.approvers.map(({ name, key_id: key }) => `${name} (${key})`);
  return new RyeError('approval_invalid', `${request.id} cannot be decided: ${problem}`, {
    hint: `Approvers are ${names.join(', ') || 'none'}; scopes are ${request.scopes.join(', ')}. If they have changed, the thread asks again: rye threads resume ${request.thread_id}`,
  });
}

function over({ request, state }: StoredApproval, now: string): RyeError {
  const { id, expires_at: expiry, thread_id: threadId } = request;
  if (state === 'pending' || state === 'expired') {
    return new RyeError('approval_expired', `${id} expired at ${expiry}, and it is ${now} now`, {
      hint: `The decision is kept as evidence. The thread continues without the call: rye threads resume ${threadId}`,
    });
  }
  return new RyeError('approval_closed', `${id} is ${state} already`, {
    hint: 'The decision is kept as evidence and changes nothing.',
    details: { id, state },
  });
}

async function assertMatches(
  properties: JsonObject,
  value: JsonObject,
  what: string,
): Promise<void> {
  await assertValid({ type: 'object', properties, required: Object.keys(properties) }, value, what);
}

async function assertValid(schema: JsonObject, value: JsonObject, what: string): Promise<void> {
  const checked = await validateInput(schema, value);
  const isExact = checked.ok && checked.coerced.length === 0;
  if (isExact) return;
  const problem = checked.ok
    ? `the type of ${checked.coerced.join(', ')} is wrong`
    : checked.problems;
  throw new RyeError('invalid_input', `${what} does not match: ${problem}`, {
    hint: 'Run `rye approvals show ID --json` to see the schema.',
  });
}

/**
 * Returns the demands on the call of a request with the inputs that people gave, as far as they are known outside of its
 * thread, which judges them again before the call starts.
 */
async function demandsOfEdits(
  workspace: Workspace,
  { request }: Pick<StoredApproval, 'request'>,
  inputs: readonly (JsonObject | undefined)[],
): Promise<readonly EditDemand[]> {
  const given = inputs.filter((input) => input !== undefined);
  if (given.length === 0) return [];
  const files = threadFiles(workspace);
  const plan = await files.readPlan(await files.readDocument(request.thread_id));
  const { risks } = await readThreadConfig(await workspace.config());
  const isOwner = workspace.keyring.signer().keyId === request.worker_key_id;
  // the user space of another person has no rules for this thread
  const policies = (await approvalPolicies(workspace)).filter(
    ({ space }) => isOwner || space === 'project',
  );
  const env = { projectPath: workspace.options.projectPath, approvals: approvalEnv(workspace) };
  const judge = judgeIn(env, { plan, threadId: request.thread_id });
  const rules = { plan, risks, policies, ownerKeyId: request.worker_key_id, judge };
  const demands: EditDemand[] = [];
  for (const input of given) {
    const need = needOfCall(request.tool, input);
    const demand = await demandOf(rules, { tool: { id: request.tool }, input, need, asks: [] });
    demands.push({ input, requirements: demand?.requirements ?? [] });
  }
  return demands;
}

/** Refuses an approval whose input the approvers of the request cannot agree to: `approval_invalid`. */
async function assertMayEdit(
  workspace: Workspace,
  stored: StoredApproval,
  { input, key_id: keyId, scope }: ApprovalDecision,
): Promise<void> {
  if (input === undefined) return;
  const { request } = stored;
  if (scope === 'tool') {
    throw new RyeError('usage', 'an approval with another input cannot cover every call', {
      hint: 'Use --scope once, or --scope arguments for calls with that input.',
    });
  }
  const [demand] = await demandsOfEdits(workspace, stored, [input]);
  const known = new Set(ableKeys(request, request.worker_key_id));
  for (const { rule, approvers, quorum } of demand?.requirements ?? []) {
    const able = new Set(ableKeys({ approvers }, request.worker_key_id));
    const both = [...able].filter((key) => known.has(key));
    if (both.length >= quorum && able.has(keyId)) continue;
    const names = approvers.map(({ name, key_id: key }) => `${name} (${key})`).join(', ');
    throw new RyeError(
      'approval_invalid',
      `${request.id} cannot be approved with this input: ${rule} asks ${names || 'people that no policy names'} for it, ${quorum} of them`,
      {
        hint: 'Approve the requested input, or deny the call with a comment, so that the call that you want is requested.',
      },
    );
  }
}

/** The part of a request that the scope of a key limits, for an input that a person gave. */
function aboutEdit(
  { request }: Pick<StoredApproval, 'request'>,
  input: JsonObject | undefined,
): Pick<ApprovalRequest, 'capability' | 'item'> {
  if (input === undefined) return request;
  const need = needOfCall(request.tool, input);
  return {
    capability: capabilityOf(need),
    item: { ...request.item, id: need.item_id ?? request.tool },
  };
}
