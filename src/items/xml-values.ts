import type { JsonObject, JsonValue } from '../core/json.ts';
import { parseJson } from '../core/json.ts';
import type { XmlElement } from './xml.ts';
import { childElements, textOf } from './xml.ts';

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/** The value that an XML text stands for: booleans, null and numbers as such, JSON lists and objects parsed, else text. */
export function typedValue(text: string): JsonValue {
  if (text === 'true') return true;
  if (text === 'false') return false;
  if (text === 'null') return null;
  if (NUMBER.test(text)) return Number(text);
  if (/^[[{]/.test(text)) return parseJson(text) ?? text;
  return text;
}

/**
 * An element as JSON: attributes and child elements become typed members, a repeated child a list; an
 * element with neither is its typed text.
 */
export function elementToJson(element: XmlElement): JsonValue {
  const children = childElements(element);
  if (element.attributes.size === 0 && children.length === 0) return typedValue(textOf(element));
  const members = new Map<string, JsonValue>();
  for (const [name, value] of element.attributes) members.set(name, typedValue(value));
  for (const child of children) {
    const value = elementToJson(child);
    const earlier = members.get(child.name);
    if (earlier === undefined) members.set(child.name, value);
    else members.set(child.name, Array.isArray(earlier) ? [...earlier, value] : [earlier, value]);
  }
  return Object.fromEntries(members) satisfies JsonObject;
}

/** `true`, `yes`, `1` in any case are true; everything else is false. */
export function isTrue(text: string | undefined): boolean {
  return text !== undefined && /^(?:true|yes|1)$/i.test(text.trim());
}
