// Writes docs/schemas from the declarations in document-schemas. Run with `npm run docs:schemas`.
import { writeFileSync } from 'node:fs';
import { schemaFiles } from './document-schemas/files.ts';

for (const [name, text] of schemaFiles()) {
  writeFileSync(new URL(`../docs/schemas/${name}`, import.meta.url), text);
}
