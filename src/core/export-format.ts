/** What `rye threads export` writes. */
export const EXPORT_FORMATS = ['md', 'jsonl', 'pi'] as const;
export type ExportFormat = (typeof EXPORT_FORMATS)[number];
