// Writes docs/schemas and src/kernel/schemas/*.json from their declarations. Run with `npm run docs:schemas`.
import { mkdirSync, writeFileSync } from 'node:fs';
import { schemaFiles } from './document-schemas/files.ts';

for (const [path, text] of schemaFiles()) {
  const file = new URL(`../${path}`, import.meta.url);
  mkdirSync(new URL('.', file), { recursive: true });
  writeFileSync(file, text);
}
