import { isRecord } from '../core/json.ts';

const SEGMENT = /^(?:[A-Za-z_$][\w$-]*|-?\d+)$/;
const MAX_SEGMENTS = 64;

/**
 * Splits a dotted path such as `steps.0.path` or `steps[0].path` into its segments, or undefined where `text` is
 * not one. Indexes count from 0, negative ones from the end.
 */
export function parsePath(text: string): readonly string[] | undefined {
  const segments = text.replaceAll(/\[(-?\d+)\]/g, '.$1').split('.');
  const fits =
    segments.length <= MAX_SEGMENTS && segments.every((segment) => SEGMENT.test(segment));
  return fits ? segments : undefined;
}

/** The value at a path, through own members and indexes only; undefined where anything on the way is missing. */
export function valueAt(root: unknown, path: readonly string[]): unknown {
  let value = root;
  for (const segment of path) {
    if (Array.isArray(value))
      value = /^-?\d+$/.test(segment) ? value.at(Number(segment)) : undefined;
    else if (isRecord(value) && Object.hasOwn(value, segment)) value = value[segment];
    else return undefined;
  }
  return value;
}
