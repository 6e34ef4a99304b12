import {
  type AssignmentExpression,
  type BinaryExpression,
  type CallExpression,
  type Expression,
  type ExpressionStatement,
  type ForOfStatement,
  type Identifier,
  type ImportDeclaration,
  type Literal,
  type MemberExpression,
  type NewExpression,
  type Node,
  type Pattern,
  type PrivateIdentifier,
  type Program,
  type Property,
  parse,
  type SpreadElement,
} from 'acorn';
import type { SourceLocation } from '../core/errors.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';
import type { SourceFacts } from './tool-advice.ts';
import { type RawToolMetadata, TOOL_CONSTANTS, toolMalformed } from './tool-metadata.ts';

/**
 * Reads the constants that describe a JavaScript tool (`const __version__ = '1.0.0'`, `export const CONFIG_SCHEMA = {…}`)
 * from its syntax tree without running it. Only top-level declarations with literal values count. Throws
 * `tool_malformed` with the location in the file.
 */
export function readJsConstants(text: string, path: string): RawToolMetadata {
  const found = new Map<string, { readonly value: JsonValue; readonly location: SourceLocation }>();
  const program = parseProgram(text, path);
  const declared = [...topLevelConstants(program)];
  const known = new Map(
    declared.filter(({ isConst }) => isConst).map(({ name, init }) => [name, init]),
  );
  for (const { name, init, node } of declared) {
    const member = Object.hasOwn(TOOL_CONSTANTS, name) ? TOOL_CONSTANTS[name] : undefined;
    if (member === undefined) continue;
    const value = literalValue(init, { path, name, known, open: new Set() });
    if (value !== null) found.set(member, { value, location: placeOf(node, path) });
  }
  const members: JsonObject = Object.fromEntries(
    [...found].map(([key, { value }]) => [key, value]),
  );
  return {
    value: members,
    locate: (key) => found.get(key)?.location ?? { path, line: 1 },
    facts: factsOf(program, text),
  };
}

/** Reads facts of a script: one whose top level only declares, imports and exports does nothing when it runs. */
function factsOf(program: Program, text: string): SourceFacts {
  const runsSomething = program.body.some((statement) => acts(statement));
  const flags = [
    ...(/["'`]--params["'`]|\bparams["']?\s*:\s*\{\s*type:\s*["']string/.test(text)
      ? ['--params']
      : []),
    ...(/(?:--|["'`])project-path\b/.test(text) ? ['--project-path'] : []),
  ];
  return { flags, imports: [], runsSomething, hasMain: runsSomething };
}

/** Nodes whose content does not run immediately. */
const LATER = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression']);
const ACTIONS = new Set([
  'CallExpression',
  'NewExpression',
  'AwaitExpression',
  'TaggedTemplateExpression',
  'ImportExpression',
  'ThrowStatement',
  'WhileStatement',
  'DoWhileStatement',
]);
const QUIET_NEW =
  /^(?:Set|Map|WeakSet|WeakMap|RegExp|Date|URL|Array|Object|TextEncoder|TextDecoder|\w*Error|\w+Array)$/;
const QUIET_CALL =
  /^(?:require|String|Number|Boolean|BigInt|RegExp|Symbol(?:\.for)?|Object\.\w+|Array\.(?:of|isArray)|Math\.\w+|JSON\.\w+|Date\.now|path\.\w+|process\.cwd|fileURLToPath|createRequire)$/;

/** True for a node that can have an effect when it is evaluated. */
function acts(node: unknown): boolean {
  if (Array.isArray(node)) return node.some(acts);
  if (typeof node !== 'object' || node === null) return false;
  const { type } = node as { readonly type?: string };
  if (type !== undefined && LATER.has(type)) return false;
  if (type !== undefined && ACTIONS.has(type) && !isQuietCall(node as Node)) return true;
  return loadsOnly(node as Node) || setsProcess(node as Node) || Object.values(node).some(acts);
}

/** True for a call that makes a plain value; its arguments may still act. */
function isQuietCall(node: Node): boolean {
  if (node.type === 'NewExpression') return QUIET_NEW.test(dotted((node as NewExpression).callee));
  return node.type === 'CallExpression' && QUIET_CALL.test(dotted((node as CallExpression).callee));
}

function dotted(node: Node): string {
  if (node.type === 'Identifier') return (node as Identifier).name;
  if (node.type !== 'MemberExpression') return '';
  const { object, property, computed } = node as MemberExpression;
  return computed ? '' : `${dotted(object)}.${dotted(property)}`;
}

/** True for a module that is loaded for what it does: no name of it is used. */
function loadsOnly(node: Node): boolean {
  if (node.type === 'ImportDeclaration') return (node as ImportDeclaration).specifiers.length === 0;
  if (node.type !== 'ExpressionStatement') return false;
  const { expression } = node as ExpressionStatement;
  return expression.type === 'CallExpression' && dotted(expression.callee) === 'require';
}

/** True for `process.exitCode = …`, and for a loop over a stream. */
function setsProcess(node: Node): boolean {
  if (node.type === 'ForOfStatement') return (node as ForOfStatement).await;
  if (node.type !== 'AssignmentExpression') return false;
  return dotted((node as AssignmentExpression).left).startsWith('process.');
}

function parseProgram(text: string, path: string): Program {
  const options = { ecmaVersion: 'latest', locations: true, allowHashBang: true } as const;
  try {
    return parse(text, { ...options, sourceType: 'module' });
  } catch (error) {
    try {
      // CommonJS allows a top-level return and `with`, modules do not.
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

function* topLevelConstants(program: Program): Generator<{
  readonly name: string;
  readonly init: Expression;
  readonly node: Node;
  readonly isConst: boolean;
}> {
  for (const statement of program.body) {
    const declaration =
      statement.type === 'ExportNamedDeclaration' ? statement.declaration : statement;
    if (declaration?.type !== 'VariableDeclaration') continue;
    for (const { id, init } of declaration.declarations) {
      const name = identifierOf(id);
      const isConst = declaration.kind === 'const';
      if (name !== undefined && init) yield { name, init, node: id, isConst };
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
  /** Top-level constants that a value may refer to. */
  readonly known: ReadonlyMap<string, Expression>;
  /** Names that are being resolved, to detect cycles. */
  readonly open: ReadonlySet<string>;
}

type LiteralNode = Expression | SpreadElement | null;

function literalValue(node: LiteralNode, constant: Constant): JsonValue {
  if (node?.type === 'Identifier') {
    const known = constant.open.has(node.name) ? undefined : constant.known.get(node.name);
    if (known === undefined) throw notLiteral(node, constant);
    return literalValue(known, { ...constant, open: new Set([...constant.open, node.name]) });
  }
  if (node?.type === 'ArrayExpression') {
    return node.elements.flatMap((element) => listItems(element, constant));
  }
  if (node?.type === 'ObjectExpression') {
    return Object.fromEntries(
      node.properties.flatMap((property) => literalMembers(property, constant)),
    );
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

/** Joins a concatenation of texts, which long descriptions often are. */
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

function listItems(element: LiteralNode, constant: Constant): readonly JsonValue[] {
  if (element?.type !== 'SpreadElement') return [literalValue(element, constant)];
  const value =
    element.argument.type === 'Identifier' && constant.known.has(element.argument.name)
      ? literalValue(element.argument, constant)
      : undefined;
  if (Array.isArray(value)) return value;
  throw notLiteral(element, constant);
}

function literalMembers(
  property: Property | SpreadElement,
  constant: Constant,
): readonly (readonly [string, JsonValue | undefined])[] {
  if (property.type === 'SpreadElement') {
    const isKnown =
      property.argument.type === 'Identifier' && constant.known.has(property.argument.name);
    const value = isKnown ? literalValue(property.argument, constant) : undefined;
    if (isJsonObject(value)) return Object.entries(value);
    throw notLiteral(property, constant);
  }
  return [literalMember(property, constant)];
}

function literalMember(property: Property, constant: Constant): [string, JsonValue] {
  if (property.kind !== 'init' || property.computed || property.method) {
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
    'Metadata is read without running the tool: write plain strings, numbers, lists and objects, or names of such constants of this file.',
  );
}
