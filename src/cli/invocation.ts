import { RyeError } from '../core/errors.ts';

export type OptionValue = string | number | boolean | readonly string[];

/** Options that every command takes. */
export interface GlobalOptions {
  readonly project?: string;
  readonly userSpace?: string;
  readonly json: boolean;
  readonly quiet: boolean;
  readonly verbose: boolean;
  readonly color: boolean;
  /** `key=value` configuration overrides of this call. */
  readonly config: readonly string[];
}

/** One parsed call of a command. Values are checked against the command's spec, not yet against the world. */
export interface Invocation {
  readonly args: readonly string[];
  readonly options: Readonly<Record<string, OptionValue | undefined>>;
  readonly global: GlobalOptions;
}

export function textOption({ options }: Invocation, name: string): string | undefined {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
}

export function numberOption({ options }: Invocation, name: string): number | undefined {
  const value = options[name];
  return typeof value === 'number' ? value : undefined;
}

export function flagOption({ options }: Invocation, name: string): boolean {
  return options[name] === true;
}

export function listOption({ options }: Invocation, name: string): readonly string[] {
  const value = options[name];
  return Array.isArray(value) ? value : [];
}

/** A positional argument that the command's spec requires. */
export function requiredArgument({ args }: Invocation, index: number, name: string): string {
  const value = args[index];
  if (value === undefined) throw new RyeError('usage', `the argument <${name}> is missing`);
  return value;
}
