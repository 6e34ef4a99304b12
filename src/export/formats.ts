import type { Exporter } from './source.ts';

/**
 * What a thread can be exported as, each loaded when it is first asked for. To add a format, add it to
 * `EXPORT_FORMATS` of the library's types and here.
 */
export const EXPORTERS = {
  html: async () => (await import('./html/page.ts')).exportHtml,
  md: async () => (await import('./knowledge.ts')).exportMarkdown,
  jsonl: async () => (await import('./path-log.ts')).exportPathLog,
  pi: async () => (await import('./pi-export.ts')).exportPi,
} as const satisfies Record<string, () => Promise<Exporter>>;
