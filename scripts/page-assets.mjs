// The script and the style of exported pages, bundled small: the exporter embeds them as they are.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { buildSync } from 'esbuild';

const client = fileURLToPath(new URL('../src/features/html/client', import.meta.url));

function bundled(file) {
  const { outputFiles } = buildSync({
    absWorkingDir: client,
    entryPoints: [file],
    bundle: true,
    write: false,
    minify: true,
    format: 'iife',
    target: ['chrome111', 'firefox115', 'safari16'],
    legalComments: 'none',
    charset: 'ascii',
  });
  const text = outputFiles[0].text.trim();
  if (/<\/(?:script|style)|<!--/i.test(text)) throw new Error(`${file} would end its own element`);
  return text;
}

/** By the identifier that the exporter knows them by; nothing for a rye without the page. */
export function pageAssets() {
  if (!existsSync(client)) return {};
  return {
    __RYE_PAGE_SCRIPT__: bundled('main.ts'),
    __RYE_PAGE_STYLE__: bundled('style.css'),
  };
}
