import path from 'node:path';
import ts from 'typescript';
import { expect, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '../..');
const INDEX = path.join(ROOT, 'src/index.ts');

/** Types of src that the declaration of `Rye` and of the functions of the library mention, at any depth. */
function mentionedTypes(): { readonly missing: readonly string[]; readonly count: number } {
  const { options } = ts.parseJsonConfigFileContent(
    ts.readConfigFile(path.join(ROOT, 'tsconfig.json'), (file) => ts.sys.readFile(file)).config,
    ts.sys,
    ROOT,
  );
  const program = ts.createProgram([INDEX], options);
  const checker = program.getTypeChecker();
  const index = program.getSourceFile(INDEX);
  const module = index && checker.getSymbolAtLocation(index);
  if (!module) throw new Error(`${INDEX} has no exports`);
  const original = (symbol: ts.Symbol): ts.Symbol =>
    (symbol.flags & ts.SymbolFlags.Alias) === 0 ? symbol : checker.getAliasedSymbol(symbol);
  const exported = new Set(checker.getExportsOfModule(module).map(original));
  const missing = new Set<string>();
  const seen = new Set<ts.Symbol>();
  const visit = (symbol: ts.Symbol): void => {
    if (seen.has(symbol)) return;
    seen.add(symbol);
    for (const declaration of symbol.declarations ?? []) {
      const file = declaration.getSourceFile().fileName;
      if (!file.startsWith(path.join(ROOT, 'src/'))) continue;
      const isType =
        ts.isInterfaceDeclaration(declaration) || ts.isTypeAliasDeclaration(declaration);
      const isPublic =
        isType && (ts.getCombinedModifierFlags(declaration) & ts.ModifierFlags.Export) !== 0;
      if (isPublic && !exported.has(symbol)) {
        missing.add(`${symbol.name} (${path.relative(ROOT, file)})`);
      }
      if (isType) visitNode(declaration);
      else if (ts.isFunctionDeclaration(declaration)) {
        for (const parameter of declaration.parameters) visitNode(parameter);
        if (declaration.type) visitNode(declaration.type);
      }
    }
  };
  const visitNode = (node: ts.Node): void => {
    if (ts.isTypeReferenceNode(node) || ts.isExpressionWithTypeArguments(node)) {
      const name = ts.isTypeReferenceNode(node) ? node.typeName : node.expression;
      const symbol = checker.getSymbolAtLocation(name);
      if (symbol) visit(original(symbol));
    }
    node.forEachChild(visitNode);
  };
  for (const symbol of exported) visit(symbol);
  return { missing: [...missing].toSorted(), count: seen.size };
}

test('the library exports every type that its exports mention', () => {
  const { missing, count } = mentionedTypes();
  expect(missing).toEqual([]);
  expect(count).toBeGreaterThan(150);
});
