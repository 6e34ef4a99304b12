import { isRecord } from './json.ts';

/** Returns the path of the first member that doesn't fit, empty for the value itself; undefined if all fit. */
type FindFault = (value: unknown) => string | undefined;

/** The shape of a JSON value that was stored and is read back. */
export class Shape<T> {
  readonly fault: FindFault;

  constructor(fault: FindFault) {
    this.fault = fault;
  }

  fits(value: unknown): value is T {
    return this.fault(value) === undefined;
  }
}

function shape<T>(fits: (value: unknown) => value is T): Shape<T> {
  return new Shape((value) => (fits(value) ? undefined : ''));
}

export const TEXT = shape((value): value is string => typeof value === 'string');
export const NUMBER = shape((value): value is number => typeof value === 'number');
export const BOOLEAN = shape((value): value is boolean => typeof value === 'boolean');
export const OBJECT = shape(isRecord);

export function oneOf<T>(values: readonly T[]): Shape<T> {
  return shape((value): value is T => values.some((known) => known === value));
}

export function optional<T>(inner: Shape<T>): Shape<T | undefined> {
  return new Shape((value) => (value === undefined ? undefined : inner.fault(value)));
}

export function nullable<T>(inner: Shape<T>): Shape<T | null> {
  return new Shape((value) => (value === null ? undefined : inner.fault(value)));
}

export function listOf<T>(inner: Shape<T>): Shape<readonly T[]> {
  return new Shape((value) =>
    Array.isArray(value) ? firstFault(value.map((one, index) => [`${index}`, one, inner])) : '',
  );
}

/** An object whose members all have the same shape. */
export function mapOf<T>(inner: Shape<T>): Shape<Readonly<Record<string, T>>> {
  return new Shape((value) =>
    isRecord(value)
      ? firstFault(Object.entries(value).map(([name, member]) => [name, member, inner]))
      : '',
  );
}

/** An object with a shape for each member of `T`; further members are allowed. */
export function objectOf<T extends object>(
  members: {
    readonly [K in keyof T]-?: Shape<unknown>;
  },
): Shape<T> {
  const shapes = Object.entries<Shape<unknown>>(members);
  return new Shape((value) =>
    isRecord(value) ? firstFault(shapes.map(([name, inner]) => [name, value[name], inner])) : '',
  );
}

function firstFault(
  members: readonly (readonly [name: string, value: unknown, inner: Shape<unknown>])[],
): string | undefined {
  for (const [name, value, inner] of members) {
    const fault = inner.fault(value);
    if (fault !== undefined) return fault === '' ? name : `${name}.${fault}`;
  }
  return undefined;
}
