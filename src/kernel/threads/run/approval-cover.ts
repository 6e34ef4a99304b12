import type { ApprovalRequest, ApprovalSubject } from '../../core/approval.ts';
import { type JsonObject, jsonEquals } from '../../core/json.ts';
import type { ReviewedCall } from '../../loop/ports.ts';
import type { Judgement } from '../../policy/approval-judgement.ts';
import { canonicalSha256 } from '../../trust/approval.ts';

type Approved = Extract<Judgement, { state: 'approved' }>;

/** The call with the input that a person gave; the gates refuse one that names no item. */
export function withInput(call: ReviewedCall, input: JsonObject): ReviewedCall {
  try {
    return { ...call, input, need: call.tool.need?.(input) ?? call.need };
  } catch {
    return { ...call, input };
  }
}

/** True if a call runs with the input that people agreed to. */
export function isAgreed(
  judgement: Judgement,
  request: Pick<ApprovalRequest, 'input_sha256'>,
  ran: JsonObject,
): boolean {
  return (
    judgement.state === 'approved' && canonicalSha256(ran) === agreedSha256(judgement, request)
  );
}

function agreedSha256(
  { input }: Pick<Approved, 'input'>,
  { input_sha256: sha256 }: Pick<ApprovalRequest, 'input_sha256'>,
): string {
  return input === undefined ? sha256 : canonicalSha256(input);
}

/** True if two calls would run the same thing under the same rules, apart from input and the bytes of files. */
export function isCovered(request: ApprovalRequest, now: ApprovalSubject): boolean {
  return (
    COVERED.every((member) => jsonEquals(request[member], now[member])) &&
    now.files.every(({ path, real, folder }) =>
      request.files.every(
        (one) => one.path !== path || (one.real === real && one.folder === folder),
      ),
    )
  );
}

const COVERED = [
  'kind',
  'thread_id',
  'tool',
  'capability',
  'item',
  'cwd',
  'sandbox',
  'network',
  'requirements',
  'worker_key_id',
  'plan_sha256',
] as const satisfies readonly (keyof ApprovalSubject)[];

/** True if an approval covers other calls with this input. A person who gives another input agrees to that one alone. */
export function isWide(
  judgement: Approved,
  request: Pick<ApprovalRequest, 'input_sha256'>,
  inputSha256: string,
): boolean {
  const { scope, input } = judgement;
  if (scope === 'tool' && input === undefined) return true;
  return scope !== 'once' && inputSha256 === agreedSha256(judgement, request);
}
