/** What `rye threads export` writes. */
export const EXPORT_FORMATS = ['md', 'html', 'jsonl', 'pi'] as const;
export type ExportFormat = (typeof EXPORT_FORMATS)[number];
