import type { ErrorCategory } from './error-class.ts';

/** Facts about a model's provider when a call of it fails. Never holds a key. */
export interface ProviderFacts {
  /** Origin of the key and of a changed address, such as `key: ANTHROPIC_API_KEY, from the environment`. */
  readonly access: string;
  /** `Did you mean …?` with models like this one. */
  readonly near?: string | undefined;
}

/** Everything that the hint of a failed model call depends on. */
export interface FailedCall {
  readonly category: ErrorCategory;
  readonly message: string;
  readonly type?: string | undefined;
  readonly status?: number | undefined;
  /** Absent: nothing is known of the provider. */
  readonly facts?: ProviderFacts | undefined;
  /** The thread that can be resumed; absent: nothing was changed, and the same command can be run again. */
  readonly threadId?: string | undefined;
  /** When the provider can be asked again, such as `05:42 UTC`. */
  readonly after?: string | undefined;
}

/**
 * Returns the hint of a failed model call: what to do, the exact next command, and where the key came from. The one place
 * that writes it, for every kind of provider.
 */
export function providerHint(call: FailedCall): string {
  const { threadId, facts } = call;
  if (threadId !== undefined && isAboutMessage(call)) {
    return `Find the message (rye threads entries ${threadId}), and continue before it: rye threads resume ${threadId} --from ENTRY`;
  }
  const resume = `rye threads resume ${threadId}${isAboutModel(call) ? ' --refresh' : ''}`;
  const next = threadId === undefined ? 'run the command again' : resume;
  const access = facts === undefined ? '' : ` (${facts.access})`;
  return `${adviceFor(call)}: ${next}${access}`;
}

function adviceFor(call: FailedCall): string {
  const { category, type, after, threadId } = call;
  if (after !== undefined) return `Wait until ${after}, or configure a fallback model. Then`;
  const network = adviceForNetwork(type);
  if (network !== undefined) return network;
  switch (category) {
    case 'rate_limited':
      return 'Wait, or configure a fallback model. Then';
    case 'transient':
      return LOCAL.test(call.message)
        ? 'Start the server. Then'
        : 'When the provider answers again';
    case 'quota':
      return 'Check the plan and billing of the account. Then';
    case 'auth':
      return type === 'provider_key_missing'
        ? 'Set the key in the environment or in ~/.ai/.env. Then'
        : CORRECT_KEY;
    case 'context_exceeded':
      return `${threadId === undefined ? 'Choose' : `Compact it (rye threads compact ${threadId}), or choose`} a model with a larger context window. Then`;
    case 'content_filtered':
      return 'Change the question or its context. Then';
    case 'permanent':
    case 'cancelled':
      return adviceForRefusal(call);
  }
}

/** Returns the advice for a way to the provider that variables of the environment describe. */
function adviceForNetwork(type = ''): string | undefined {
  if (type.startsWith('proxy_'))
    return 'Set its variable as in http://USER:PASSWORD@HOST:PORT, or add the host of the provider to NO_PROXY. Then';
  if (type === 'ca_unreadable') return 'Set the variable to a PEM file with certificates. Then';
  if (UNTRUSTED.test(type))
    return 'If your network has its own certificate authority, set NODE_EXTRA_CA_CERTS to its PEM file. Then';
  return undefined;
}

/** Types of failures of a certificate whose authority is unknown. */
const UNTRUSTED = /^(?:CERT_UNTRUSTED|UNABLE_TO_\w+|(?:DEPTH_ZERO_)?SELF_SIGNED_CERT\w*)$/;

/** A server of this machine that does not run. */
const LOCAL = /^cannot reach (?:127\.|localhost|\[::1\])\S+ ECONNREFUSED/;
const CORRECT_KEY = 'Correct the key. Then';

/** Returns the advice for a refusal whose class does not tell what is wrong. */
function adviceForRefusal(call: FailedCall): string {
  const { message, facts, type } = call;
  if (type === 'unknown_stop_reason') return 'The conversation has the text. To have it continued';
  // Google answers 400 to a wrong key
  if (/\bapi.?key\b/i.test(message)) return CORRECT_KEY;
  if (!isAboutModel(call)) {
    return 'Check the model (rye models list) and the address of its provider. Then';
  }
  const near = facts?.near === undefined ? '' : `${facts.near} `;
  return `${near}Pass --model with one of: rye models list. If the directive names the model, correct it. Then`;
}

/** True if the provider refuses a message of the conversation, which each further request would send again. */
function isAboutMessage({ category, message, status }: FailedCall): boolean {
  return (
    category === 'permanent' &&
    status === 400 &&
    /\b(?:messages|input|contents)[.[]\d/.test(message)
  );
}

/** True if the provider does not know the model. */
function isAboutModel({ message, type = '', status }: FailedCall): boolean {
  return type.includes('model_not_found') || (status === 404 && /\bmodel\b/i.test(message));
}
