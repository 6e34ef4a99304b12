import { RyeError, toRyeError } from '../../core/errors.ts';

/** Acts on each item, also after a failure, and then throws what failed as one error. */
export async function eachOne<T>(
  items: readonly T[],
  act: (item: T) => Promise<unknown>,
): Promise<void> {
  const failures: RyeError[] = [];
  for (const item of items) {
    try {
      await act(item);
    } catch (error) {
      failures.push(toRyeError(error));
    }
  }
  const [first, ...others] = failures;
  if (!first) return;
  if (others.length === 0) throw first;
  const messages = [...new Set(failures.map(({ message }) => message))];
  throw new RyeError(first.code, messages.join('; '), {
    ...(first.hint === undefined ? {} : { hint: first.hint }),
    ...(first.details === undefined ? {} : { details: first.details }),
    cause: first,
  });
}
