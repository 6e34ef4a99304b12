import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { ThreadFiles } from '../threads/ports.ts';
import type { ThreadDocument } from '../threads/thread-document.ts';
import { openThreadFiles } from '../threads/thread-files-fs.ts';
import { sha256Hex } from '../trust/keys.ts';
import { splitText } from '../trust/signature-line.ts';
import type { Foundation } from './foundation.ts';
import { ThreadHeads } from './thread-heads.ts';

/** The signed files of a project's threads. */
export function threadFiles(base: Foundation): ThreadFiles {
  const { options, clock, keyring } = base;
  const files = openThreadFiles({
    projectPath: options.projectPath,
    clock,
    key: () => keyring.signer(),
    keys: keyring,
  });
  const heads = new ThreadHeads(base);
  return {
    ...files,
    writeDocument: async (document) => {
      const named = withParts(document, files.folder(document.thread_id));
      await files.writeDocument(named);
      await heads.note(named);
    },
    writeKnowledge: async (path, text) => {
      await files.writeKnowledge(path, text);
      heads.noteExport(basename(path, '.md'), recordHash(readFileSync(path, 'utf8')));
    },
  };
}

/** The document of a thread that ended names what else was written, so that a missing part is found. */
function withParts(document: ThreadDocument, folder: string): ThreadDocument {
  if (!document.transcript || document.capabilities_sha256 !== undefined) return document;
  try {
    const text = readFileSync(join(folder, 'capabilities.md'), 'utf8');
    return { ...document, capabilities_sha256: recordHash(text) };
  } catch {
    return document; // it ended before it had one
  }
}

/** SHA-256 hex of a signed text without its signature: signing it again changes nothing. */
export function recordHash(text: string): string {
  const { content } = splitText(text, 'html');
  return sha256Hex(content);
}
