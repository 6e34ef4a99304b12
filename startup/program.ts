// What bin/rye.js takes from `program.cjs`.
export { start } from '../src/faces/cli/main.ts';
export { keepMeanings } from '../src/kernel/items/meanings.ts';
