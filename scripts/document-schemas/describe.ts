// Describes the types of documents as JSON Schema.
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

export type Schema = Readonly<Record<string, unknown>>;

const DIALECT = 'https://json-schema.org/draft/2020-12/schema';
const PROMISE = 'Members are added within a major version, never renamed.';

/** Paths of numbers that need not be whole: money, times and scores. All others count something. */
const FRACTIONS =
  /(?:spend|usd|seconds|seconds_left|score)$|^prices\.(?:input|output|cache_)|^plan\.limits\./;

const OPTIONS: ts.CompilerOptions = {
  allowImportingTsExtensions: true,
  exactOptionalPropertyTypes: true,
  module: ts.ModuleKind.NodeNext,
  strict: true,
  target: ts.ScriptTarget.ES2023,
  types: [],
};

const { TypeFlags } = ts;

/** Describes the interface `Documents` of a file, by member. */
export function describeDocuments(url: URL): ReadonlyMap<string, Schema> {
  const file = fileURLToPath(url);
  const program = ts.createProgram([file], OPTIONS, hostWithoutPackages());
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(file);
  const module = source && checker.getSymbolAtLocation(source);
  const typeOf = (name: string): ts.Type => {
    const symbol = module?.exports?.get(ts.escapeLeadingUnderscores(name));
    if (!symbol) throw new Error(`${file} does not export ${name}`);
    return checker.getDeclaredTypeOfSymbol(symbol);
  };
  const describer = new Describer(checker, {
    closed: checker.getTypeArguments(typeOf('ClosedParts') as ts.TypeReference),
    open: checker.getTypeArguments(typeOf('OpenWords') as ts.TypeReference),
  });
  const documents = checker.getPropertiesOfType(typeOf('Documents'));
  return new Map(documents.map((member) => [member.name, describer.document(member)]));
}

/** No document has a type of a package, and reading those takes seconds. */
function hostWithoutPackages(): ts.CompilerHost {
  const host = ts.createCompilerHost(OPTIONS);
  host.resolveModuleNameLiterals = (names, from) =>
    names.map(({ text }) =>
      text.startsWith('.')
        ? ts.resolveModuleName(text, from, OPTIONS, host)
        : { resolvedModule: undefined },
    );
  return host;
}

class Describer {
  readonly #checker: ts.TypeChecker;
  readonly #closed: ReadonlySet<ts.Type>;
  readonly #open: ReadonlySet<string>;

  constructor(
    checker: ts.TypeChecker,
    { closed, open }: { readonly closed: readonly ts.Type[]; readonly open: readonly ts.Type[] },
  ) {
    this.#checker = checker;
    this.#closed = new Set(closed);
    this.#open = new Set(open.map((type) => String(wordsOf(choicesOf(type)))));
  }

  /** Describes a member of `Documents`, whose doc comment is `COMMAND: PURPOSE`. */
  document(member: ts.Symbol): Schema {
    const [, command, purpose] = /^(.*?): (.*)$/.exec(this.#comment(member)) ?? [];
    if (command === undefined) throw new Error(`${member.name} names no command`);
    return {
      $schema: DIALECT,
      title: `${command} --json`,
      description: `${purpose} ${PROMISE}`,
      ...this.#value(choicesOf(this.#checker.getTypeOfSymbol(member)), ''),
    };
  }

  /** Describes a value with one of these types; `at` is the dotted path of its member. */
  #value(types: readonly ts.Type[], at: string): Schema {
    const choices = [...new Set(types)].filter(({ flags }) => !(flags & TypeFlags.Undefined));
    const values = choices.filter(({ flags }) => !(flags & TypeFlags.Null));
    const hasObject = values.some((type) => this.#isObject(type));
    const hasText = values.some(({ flags }) => flags & TypeFlags.String);
    if (choices.some(({ flags }) => flags & TypeFlags.Unknown) || (hasObject && hasText)) return {};
    const schema = hasObject ? this.#object(values, at) : this.#plain(values, at);
    if (values.length === choices.length) return schema;
    const { type, enum: words } = schema;
    const choice = Array.isArray(words) ? { enum: [...words, null] } : {};
    return { ...schema, type: [type, 'null'], ...choice };
  }

  #plain(values: readonly ts.Type[], at: string): Schema {
    const [first, second] = values;
    const flags = first?.flags ?? TypeFlags.Any;
    if (flags & TypeFlags.BooleanLiteral) {
      const only = second ? {} : { const: first === this.#checker.getTrueType() };
      return { type: 'boolean', ...only };
    }
    if (flags & (TypeFlags.StringLiteral | TypeFlags.NumberLiteral)) return this.#words(values);
    if (flags & TypeFlags.String) return { type: 'string' };
    if (flags & TypeFlags.Number) return { type: FRACTIONS.test(at) ? 'number' : 'integer' };
    if (!first || !this.#checker.isArrayType(first)) throw new Error(`cannot describe ${at}`);
    const [item] = this.#checker.getTypeArguments(first as ts.TypeReference);
    const items = this.#value(item ? choicesOf(item) : [], at);
    return { type: 'array', ...(isAnything(items) ? {} : { items }) };
  }

  #words(values: readonly ts.Type[]): Schema {
    const words = wordsOf(values);
    const [first, ...others] = words;
    const type = typeof first;
    if (this.#open.has(String(words))) return { type: type === 'number' ? 'integer' : type };
    return { type, ...(others.length > 0 ? { enum: words } : { const: first }) };
  }

  /** Describes objects of several types as one with the members of all. */
  #object(types: readonly ts.Type[], at: string): Schema {
    const [index] = types.flatMap((type) => type.getStringIndexType() ?? []);
    if (index) {
      const members = this.#value(choicesOf(index), at);
      return { type: 'object', ...(isAnything(members) ? {} : { additionalProperties: members }) };
    }
    const all = types.flatMap(membersOf);
    const isClosed =
      types.some((type) => this.#closed.has(type)) || all.some(({ name }) => isMark(name));
    const names = [...new Set(all.map(({ name }) => name))].filter((name) => !isMark(name));
    const required = names.filter((name) =>
      types.every((type) => {
        const member = type.getProperty(name);
        return member && !(member.flags & ts.SymbolFlags.Optional);
      }),
    );
    return {
      type: 'object',
      properties: Object.fromEntries(names.map((name) => [name, this.#member(types, name, at)])),
      ...(required.length > 0 ? { required } : {}),
      ...(isClosed ? { additionalProperties: false } : {}),
    };
  }

  #member(types: readonly ts.Type[], name: string, at: string): Schema {
    const members = types.flatMap((type) => type.getProperty(name) ?? []);
    const values = members.flatMap((member) => choicesOf(this.#checker.getTypeOfSymbol(member)));
    const schema = this.#value(values, at === '' ? name : `${at}.${name}`);
    const [description = ''] = members.map((member) => this.#comment(member));
    return { ...schema, ...(description === '' ? {} : { description }) };
  }

  /** Returns the text of a doc comment as one line. */
  #comment(symbol: ts.Symbol): string {
    const text = ts.displayPartsToString(symbol.getDocumentationComment(this.#checker));
    return text.replaceAll(/\{@link (\S+)\}/g, '`$1`').replaceAll(/\s+/g, ' ');
  }

  #isObject(type: ts.Type): boolean {
    return (
      (type.flags & (TypeFlags.Object | TypeFlags.Intersection)) !== 0 &&
      !this.#checker.isArrayType(type)
    );
  }
}

/** True for the member that `Closed` adds. */
function isMark(name: string): boolean {
  return name.startsWith('__@');
}

function isAnything(schema: Schema): boolean {
  return Object.keys(schema).length === 0;
}

function choicesOf(type: ts.Type): readonly ts.Type[] {
  return type.isUnion() ? type.types : [type];
}

/** Returns members as they are declared: the order of a mapped type depends on what the compiler has read before. */
function membersOf(type: ts.Type): readonly ts.Symbol[] {
  if (type.isIntersection()) return type.types.flatMap(membersOf);
  return type.getProperties().toSorted((a, b) => (placeOf(a) < placeOf(b) ? -1 : 1));
}

/** Returns a text that sorts like the declarations of one file. */
function placeOf({ name, declarations: [first] = [] }: ts.Symbol): string {
  if (!first) return name;
  return `${path.basename(first.getSourceFile().fileName)} ${String(first.pos).padStart(9, '0')}`;
}

/** Returns literals in a fixed order: that of a union depends on what the compiler has read before. */
function wordsOf(types: readonly ts.Type[]): readonly unknown[] {
  return types
    .map((type) => (type.isLiteral() ? type.value : null))
    .toSorted((left, right) => (String(left) < String(right) ? -1 : 1));
}
