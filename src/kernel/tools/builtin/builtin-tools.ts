import type { Tool } from '../tool.ts';
import { createBashTool } from './bash.ts';
import { createEditTool, createMultiEditTool } from './edit.ts';
import { createGlobTool } from './glob.ts';
import { createGrepTool } from './grep.ts';
import { createLsTool } from './ls.ts';
import type { BuiltinOptions } from './options.ts';
import { createReadTool } from './read.ts';
import { createWriteTool } from './write.ts';

/** The file-system tools and the shell, for one thread. */
export function createBuiltinTools(options: BuiltinOptions): readonly Tool[] {
  return [
    createReadTool(options),
    createWriteTool(options),
    createEditTool(options),
    createMultiEditTool(options),
    createLsTool(options),
    createGlobTool(options),
    createGrepTool(options),
    createBashTool(options),
  ];
}
