import type { ListedApproval } from '../../app/api/approvals.ts';
import { neutralize, oneLine } from '../terminal-text.ts';

/** Describes a request for people: what would run, then who may decide about it. */
export function requestLines(approval: ListedApproval): readonly string[] {
  const { id, kind, state, tool, thread_id: threadId, preview, reason, approvers } = approval;
  const quorum = approval.quorum > 1 ? ` (${approval.quorum} of them)` : '';
  const facts: readonly (readonly [string, string])[] = [
    ['request', `${id}  ${kind}  ${state}`],
    ['thread', threadId],
    ['tool', `${tool}  (${approval.capability})`],
    ['asked by', approval.rule],
    ...(reason === '' ? [] : [['reason', reason] as const]),
    [
      'approvers',
      `${approvers.map(({ name, key_id: key }) => `${name} ${key}`).join(', ')}${quorum}`,
    ],
    ['scopes', approval.scopes.join(', ')],
    ['input', approval.input_sha256],
    ['hash', approval.request_sha256],
    ['expires', approval.expires_at],
    ...approval.decisions.map(
      ({ decision, key_id: key, decided_at: at, late, comment }) =>
        [
          late ? 'late' : 'decided',
          `${decision} by ${key} at ${at}${comment === '' ? '' : `: ${comment}`}`,
        ] as const,
    ),
  ];
  return [
    ...facts.map(([name, value]) => `${name.padEnd(10)} ${oneLine(value)}`),
    '',
    oneLine(preview.title),
    ...neutralize(preview.text)
      .split('\n')
      .map((line) => `  ${line}`),
    ...(preview.schema ? [`  answer: ${oneLine(JSON.stringify(preview.schema))}`] : []),
  ];
}
