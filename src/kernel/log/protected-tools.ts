const PROTECTED = /(?:^|_)(?:skills?_use|skills_read|tool_search)$/;

/** True for tools whose results a model keeps working with: bodies of skills, and schemas that were loaded. */
export function isProtectedTool(name: string): boolean {
  return PROTECTED.test(name);
}
