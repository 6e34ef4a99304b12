import type {
  BinaryExpression,
  Expression,
  Literal,
  Node,
  Pattern,
  PrivateIdentifier,
  Program,
  Property,
  SpreadElement,
} from 'acorn';
import { parse } from 'acorn';
import type { SourceLocation } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import type { RawToolMetadata } from './tool-metadata.ts';
import { TOOL_CONSTANTS, toolMalformed } from './tool-metadata.ts';

/**
 * Reads the constants that describe a JavaScript tool (`const __version__ = '1.0.0'`, `export const CONFIG_SCHEMA = {…}`) from its syntax tree; the
 * code is never run. Only top-level declarations with literal values count. Errors: `tool_malformed` with the place in the file.
 */
export function readJsConstants(text: string, path: string): RawToolMetadata {
  const found = new Map<string, { readonly value: JsonValue; readonly location: SourceLocation }>();
  for (const { name, init, node } of topLevelConstants(parseProgram(text, path))) {
    const member = Object.hasOwn(TOOL_CONSTANTS, name) ? TOOL_CONSTANTS[name] : undefined;
    if (member === undefined) continue;
    const value = literalValue(init, { path, name });
    if (value !== null) found.set(member, { value, location: placeOf(node, path) });
  }
  const members: JsonObject = Object.fromEntries(
    [...found].map(([key, { value }]) => [key, value]),
  );
  return { value: members, locate: (key) => found.get(key)?.location ?? { path, line: 1 } };
}

function parseProgram(text: string, path: string): Program {
  const options = { ecmaVersion: 'latest', locations: true, allowHashBang: true } as const;
  try {
    return parse(text, { ...options, sourceType: 'module' });
  } catch (error) {
    try {
      // CommonJS allows what modules do not, such as a top-level return or `with`.
      return parse(text, { ...options, sourceType: 'script', allowReturnOutsideFunction: true });
    } catch {
      throw syntaxError(error, path);
    }
  }
}

function syntaxError(error: unknown, path: string): Error {
  if (!(error instanceof SyntaxError)) throw error;
  const { line, column } =
    'loc' in error ? (error.loc as { line: number; column: number }) : { line: 1, column: 0 };
  const reason = error.message.replace(/ \(\d+:\d+\)$/, '');
  return toolMalformed(`this is not JavaScript: ${reason}`, { path, line, column: column + 1 });
}

function* topLevelConstants(
  program: Program,
): Generator<{ readonly name: string; readonly init: Expression; readonly node: Node }> {
  for (const statement of program.body) {
    const declaration =
      statement.type === 'ExportNamedDeclaration' ? statement.declaration : statement;
    if (declaration?.type !== 'VariableDeclaration') continue;
    for (const { id, init } of declaration.declarations) {
      const name = identifierOf(id);
      if (name !== undefined && init) yield { name, init, node: id };
    }
  }
}

function identifierOf(pattern: Pattern): string | undefined {
  return pattern.type === 'Identifier' ? pattern.name : undefined;
}

function placeOf(node: Node, path: string): SourceLocation {
  const start = node.loc?.start;
  return start === undefined ? { path } : { path, line: start.line, column: start.column + 1 };
}

interface Constant {
  readonly path: string;
  readonly name: string;
}

type LiteralNode = Expression | SpreadElement | null;

function literalValue(node: LiteralNode, constant: Constant): JsonValue {
  if (node?.type === 'ArrayExpression') {
    return node.elements.map((element) => literalValue(element, constant));
  }
  if (node?.type === 'ObjectExpression') {
    return Object.fromEntries(node.properties.map((property) => literalMember(property, constant)));
  }
  const value = scalarValue(node, constant);
  if (value === undefined) throw notLiteral(node, constant);
  return value;
}

function scalarValue(node: LiteralNode, constant: Constant): JsonValue | undefined {
  if (node?.type === 'Literal') return plainLiteral(node);
  if (node?.type === 'TemplateLiteral' && node.expressions.length === 0) {
    return node.quasis[0]?.value.cooked ?? undefined;
  }
  if (node?.type === 'UnaryExpression' && node.operator === '-') {
    const number = literalValue(node.argument, constant);
    return typeof number === 'number' ? -number : undefined;
  }
  return node?.type === 'BinaryExpression' ? joinedText(node, constant) : undefined;
}

/** Long descriptions are often joined from several lines. */
function joinedText(
  { operator, left, right }: BinaryExpression,
  constant: Constant,
): string | undefined {
  if (operator !== '+' || left.type === 'PrivateIdentifier') return undefined;
  const texts = [literalValue(left, constant), literalValue(right, constant)];
  return texts.every((text) => typeof text === 'string') ? texts.join('') : undefined;
}

function plainLiteral(node: Literal): JsonValue | undefined {
  const { value, regex, bigint } = node;
  if (value === null) return regex === undefined && bigint === undefined ? null : undefined;
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    ? value
    : undefined;
}

function literalMember(
  property: Property | SpreadElement,
  constant: Constant,
): [string, JsonValue] {
  const { type } = property;
  if (type !== 'Property' || property.kind !== 'init' || property.computed || property.method) {
    throw notLiteral(property, constant);
  }
  return [memberName(property.key, constant), literalValue(property.value, constant)];
}

function memberName(key: Expression | PrivateIdentifier, constant: Constant): string {
  if (key.type === 'Identifier') return key.name;
  if (key.type === 'Literal' && (typeof key.value === 'string' || typeof key.value === 'number')) {
    return String(key.value);
  }
  throw notLiteral(key, constant);
}

function notLiteral(node: Node | null, { path, name }: Constant): Error {
  return toolMalformed(
    `${name} is not a literal value`,
    node === null ? { path } : placeOf(node, path),
    'Metadata is read without running the tool: write plain strings, numbers, lists and objects.',
  );
}
