import { RyeError } from '../../core/errors.ts';
import { DirectiveWriter } from '../../items/directive-writer.ts';
import type {
  DefinedDirective,
  DirectiveDeclaration,
  DirectiveInputDeclarations,
  DirectiveInputs,
  DirectiveOutputDeclarations,
  DirectiveOutputs,
} from '../api/directives.ts';
import type { OutputSchema } from '../api/output-schema.ts';
import { jsonSchemaOf } from './output-schema.ts';

/** The declaration of a directive, and the member that each line of its text comes from. */
export interface DirectiveSource {
  readonly declaration: DirectiveDeclaration;
  readonly members: readonly string[];
}

const sources = new WeakMap<object, DirectiveSource>();

/**
 * Returns a directive from code. Throws `usage` for a misspelled member or one of the wrong type. A run, or
 * `rye.defineDirective()`, checks the rest with the parser for files.
 */
export function defineDirective<
  const D extends DirectiveInputDeclarations,
  const O extends DirectiveOutputDeclarations,
>(
  declaration: DirectiveDeclaration<D, O>,
): DefinedDirective<DirectiveInputs<D>, DirectiveOutputs<O>> {
  const writer = new DirectiveWriter(declaration, (schema, where) =>
    jsonSchemaOf(schema as OutputSchema, where),
  );
  const text = writer.text();
  const defined = Object.freeze({ id: declaration.id, text });
  sources.set(defined, { declaration, members: writer.members });
  return defined;
}

/** Throws `usage` for a value that does not come from {@link defineDirective}. */
export function directiveSource(directive: DefinedDirective): DirectiveSource {
  const source = sources.get(directive);
  if (source) return source;
  throw new RyeError('usage', 'the directive of a run is not a value of defineDirective()', {
    hint: 'Pass what defineDirective() returns, or name a file with directiveId.',
  });
}
