// Runs the command line from the sources, without a build: `npm run dev -- run hello`.
import { fileURLToPath } from 'node:url';
import { tsImport } from 'tsx/esm/api';
import { definitions } from './define.mjs';

for (const [name, json] of Object.entries(await definitions())) globalThis[name] = JSON.parse(json);
const { createProcessIo, start } = await tsImport('../src/faces/cli/main.ts', import.meta.url);
const io = createProcessIo();
// detached threads run from the sources too
const program = [fileURLToPath(import.meta.url)];
await start({ ...io, openRye: (options) => io.openRye({ ...options, program }) });
