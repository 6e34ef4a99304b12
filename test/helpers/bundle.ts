import { mkdtempSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { build, type Plugin } from 'esbuild';

/** A deliberate mistake: one text of a source becomes another. */
export interface Mistake {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

const ROOT = path.resolve(import.meta.dirname, '../..');

/**
 * Bundles a test's program into one file, which starts in a fraction of the time that its sources need under tsx. Returns the
 * file. It lies in the test run's folder below node_modules, so that it finds its packages. A program that
 * opens projects has the constants of the build.
 */
export async function bundle(
  entry: string,
  mistake?: Mistake,
  { opensProjects = false }: { readonly opensProjects?: boolean } = {},
): Promise<string> {
  const folder = process.env['RYE_TEST_CLI_DIR'];
  if (folder === undefined) throw new Error('bundle() works only under Vitest');
  const outfile = path.join(mkdtempSync(path.join(folder, 'program-')), 'program.mjs');
  await build({
    entryPoints: [entry],
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'external',
    define: opensProjects ? await definitions() : {},
    logLevel: 'error',
    plugins: mistake ? [withMistake(mistake)] : [],
  });
  return outfile;
}

async function definitions(): Promise<Record<string, string>> {
  const script: string = path.join(ROOT, 'scripts', 'define.mjs');
  const loaded = (await import(script)) as { definitions(): Promise<Record<string, string>> };
  return await loaded.definitions();
}

function withMistake({ file, from, to }: Mistake): Plugin {
  const mutated = path.join(ROOT, file);
  return {
    name: 'mistake',
    setup({ onLoad, onEnd }) {
      let isLoaded = false;
      onLoad({ filter: /\.ts$/ }, ({ path: loaded }) => {
        if (loaded !== mutated) return undefined;
        const source = readFileSync(mutated, 'utf8');
        // a mistake that changes nothing would prove nothing
        if (source.split(from).length !== 2)
          throw new Error(`${file} does not contain ${from} once`);
        isLoaded = true;
        return { contents: source.replace(from, to), loader: 'ts' };
      });
      onEnd(() => {
        if (!isLoaded) throw new Error(`the program does not contain ${file}`);
      });
    },
  };
}
