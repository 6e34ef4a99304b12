/** Variables that every child gets when they are set. */
const PASSED = new Set(['HOME', 'LANG', 'TERM', 'TMPDIR', 'TZ', 'SHELL', 'USER']);
/** Variables with which every child reaches the network as rye does. Many programs read only one of the two cases. */
const NETWORK =
  /^(?:(?:https?|all|no)_proxy|(?:HTTPS?|ALL|NO)_PROXY|NODE_EXTRA_CA_CERTS|SSL_CERT_(?:FILE|DIR))$/;
/** The variable that marks the processes of one call: those that leave its process group keep it. */
export const CALL_VARIABLE = 'RYE_CALL_ID';
/** Variables that tell which thread and call a process belongs to. */
const OF_THREAD = new Set(['RYE_PROJECT', 'RYE_THREAD_ID', 'RYE_PARENT_THREAD_ID', CALL_VARIABLE]);

/** True for a variable that every child gets as it is. */
export function isPassed(name: string): boolean {
  return PASSED.has(name) || name.startsWith('LC_') || NETWORK.test(name);
}

/** True for a variable that is no secret for tools: they get it, or rye reads it from the processes above. */
export function isShown(name: string): boolean {
  return name === 'PATH' || isPassed(name) || OF_THREAD.has(name);
}
