import type { JsonObject } from '../core/json.ts';

/** A validated text argument; the schema guarantees its type. */
export function text(input: JsonObject, name: string, fallback = ''): string {
  const value = input[name];
  return typeof value === 'string' ? value : fallback;
}

export function integer(input: JsonObject, name: string, fallback: number): number {
  const value = input[name];
  return typeof value === 'number' ? value : fallback;
}

export function flag(input: JsonObject, name: string): boolean {
  return input[name] === true;
}

/** An object schema without further properties. */
export function objectSchema(properties: JsonObject, required: readonly string[]): JsonObject {
  return { type: 'object', properties, required, additionalProperties: false };
}
