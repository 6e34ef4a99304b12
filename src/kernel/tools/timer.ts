/** The longest delay that a timer of Node takes; it fires at once for a longer one. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** A timer that was started. */
export interface Timer {
  /** Stops it. A timer that has fired, or was stopped, stays as it is. */
  stop(): void;
}

/** Calls `fire` once after `ms`, however long that is. `weak`: it does not keep the process alive. */
export function startTimer(ms: number, fire: () => void, { weak = false } = {}): Timer {
  let handle: NodeJS.Timeout;
  const wait = (left: number): void => {
    const part = Math.min(left, MAX_DELAY_MS);
    handle = setTimeout(() => {
      if (left > part) wait(left - part);
      else fire();
    }, part);
    if (weak) handle.unref();
  };
  wait(ms);
  return { stop: () => clearTimeout(handle) };
}

/** A signal that aborts with a `TimeoutError` after `ms`, however long that is, until the timer is stopped. */
export function timeoutSignal(ms: number): Timer & { readonly signal: AbortSignal } {
  const controller = new AbortController();
  const late = (): void =>
    controller.abort(new DOMException('The operation was aborted due to timeout', 'TimeoutError'));
  return { signal: controller.signal, ...startTimer(ms, late, { weak: true }) };
}
