let over: DOMException | undefined;

/**
 * The reason of an abort that only says that something is over. It reads like the default one, and is made once: each
 * default reason records a stack, which costs more than the abort, and a turn ends half a dozen timers.
 */
export function overReason(): DOMException {
  over ??= new DOMException('This operation was aborted', 'AbortError');
  return over;
}

/**
 * The text of what a caller gave as the reason of an abort: a text, or the message of an error such as that of
 * `AbortSignal.timeout()`. Undefined for the default reason of an abort that was given none.
 */
export function abortText(reason: unknown): string | undefined {
  if (typeof reason === 'string') return reason;
  if (!(reason instanceof Error) || reason.message === '') return undefined;
  return reason.name === 'AbortError' ? undefined : reason.message;
}
