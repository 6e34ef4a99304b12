import { spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import type { RequestedApproval } from '../../core/approval.ts';
import { messageOf } from '../../core/errors.ts';
import type { Notification } from '../../policy/approvals.ts';
import { webFetch } from '../../startup/web-fetch.ts';
import { childEnvironment } from '../../tools/process.ts';
import type { Workspace } from '../workspace.ts';
import { listedApproval } from './listed.ts';
import { approvalPolicies } from './policy.ts';

const TIMEOUT_MS = 10_000;

/** Tells the programs and servers of the policies about a request. A failure is only a notice. No program decides here. */
export async function notifyPeople(
  workspace: Workspace,
  requested: RequestedApproval,
): Promise<void> {
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
  await new Promise<void>((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: projectPath,
      env: plain,
      stdio: ['pipe', 'ignore', 'ignore'],
      timeout: TIMEOUT_MS,
      killSignal: 'SIGKILL',
    });
    child.once('error', reject);
    child.once('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`${program} ended with ${code ?? 'a signal'}`)),
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
