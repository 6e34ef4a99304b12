const MAX_EXPRESSION = 1000;

/** Why the worker can't run a condition; a long one may not run there either. */
export function expressionProblem(condition: string): string | undefined {
  if (condition.length > MAX_EXPRESSION) return `it is longer than ${MAX_EXPRESSION} characters`;
  try {
    const { source, flags } = javaScriptOf(condition);
    return new RegExp(source, flags).source === '' ? 'it is empty' : undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

export function isExpression(condition: string): boolean {
  return expressionProblem(condition) === undefined;
}

/** Returns a condition as JavaScript writes it, which has no flags at the start of an expression. */
export function javaScriptOf(condition: string): {
  readonly source: string;
  readonly flags: string;
} {
  const [start = '', flags = ''] = /^\(\?([ims]+)\)/.exec(condition) ?? [];
  return { source: condition.slice(start.length), flags: `u${[...new Set(flags)].join('')}` };
}
