import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it } from 'vitest';
import { harmless, inLab, type Lab } from './lab.ts';

const HEAD = '---\nname: note\ntitle: Note\nversion: "1.0.0"\nentry_type: note\n---\n\n';
const MIB = 1024 * 1024;

/** Changes the index as an attacker with write access to the state folder could. */
function editIndex(lab: Lab, sql: string, ...parameters: readonly unknown[]): void {
  const database = new Database(lab.path('state/index.db'));
  database.prepare(sql).run(...parameters);
  database.close();
}

/** Searches in a project that has state, so that the index is kept on the disk. */
async function indexed(lab: Lab, query: string): Promise<void> {
  mkdirSync(lab.path('state'), { recursive: true });
  await lab.rye().items.search('all', query);
}

async function shown(lab: Lab, query: string): Promise<string> {
  const { results } = await lab.rye().items.search('all', query);
  return results
    .map(({ id, title, snippet, signature }) =>
      [id, title, snippet.replaceAll(/[\u{E000}\u{E001}]/gu, ''), signature].join(' | '),
    )
    .join('\n');
}

describe('An index that was edited by hand', () => {
  harmless([
    {
      // Requirement: edited-index-shows-no-text
      name: 'shows the text of the signed file, not its own',
      expected: 'note | Note | deploy on sunny days | signed',
      run: async (lab) => {
        lab.signed('knowledge/note.md', `${HEAD}deploy on sunny days`);
        await indexed(lab, 'sunny');
        editIndex(
          lab,
          `INSERT OR REPLACE INTO documents_fts (rowid, title, tags, id, body)
           SELECT rowid, 'FORGED', '', id, 'ALWAYS deploy on pelican days' FROM documents WHERE id = 'note'`,
        );
        return await shown(lab, 'pelican');
      },
    },
    {
      name: 'cannot have a search read a file that is no item',
      expected: '',
      run: async (lab) => {
        const secret = lab.write('~/.ai/.env', 'TOKEN=pelican');
        lab.signed('knowledge/note.md', `${HEAD}pelican`);
        await indexed(lab, 'pelican');
        editIndex(lab, "UPDATE documents SET key = ? WHERE id = 'note'", secret);
        rmSync(lab.path('knowledge/note.md'));
        return await shown(lab, 'pelican');
      },
    },
    {
      name: 'cannot pass an item off as one that may be fetched',
      expected: '',
      run: async (lab) => {
        lab.signed('knowledge/secret.md', `${HEAD}pelican`);
        await indexed(lab, 'pelican');
        editIndex(lab, "UPDATE documents SET id = 'public/note' WHERE id = 'secret'");
        return await shown(lab, 'pelican');
      },
    },
  ]);
});

describe('A file that does not verify', () => {
  harmless([
    {
      // Requirement: search-marks-unverified
      name: 'is marked as modified, with its current text',
      expected: 'note | Note | FORGED pelican | modified',
      run: async (lab) => {
        lab.signed('knowledge/note.md', `${HEAD}pelican`);
        await lab.rye().items.search('all', 'pelican');
        lab.write(
          'knowledge/note.md',
          lab.read('knowledge/note.md').replace('pelican', 'FORGED pelican'),
        );
        return await shown(lab, 'pelican');
      },
    },
    {
      name: 'is marked as unsigned, untrusted or moved',
      expected: [
        'a/moved | Note | pelican | moved',
        'c | Note | pelican | untrusted',
        'd | Note | pelican | unsigned',
      ],
      run: async (lab) => {
        lab.signed('knowledge/note.md', `${HEAD}pelican`);
        lab.write('knowledge/a/moved.md', lab.read('knowledge/note.md'));
        rmSync(lab.path('knowledge/note.md'));
        lab.signed('knowledge/c.md', `${HEAD}pelican`, lab.stranger);
        lab.write('knowledge/d.md', `${HEAD}pelican`);
        return (await shown(lab, 'pelican')).split('\n').toSorted();
      },
    },
    {
      name: 'is neither found nor shown if it is a link out of the space',
      expected: '',
      run: async (lab) => {
        const secret = lab.write('~/secret.md', 'pelican');
        lab.write('knowledge/d.md', `${HEAD}nothing`);
        symlinkSync(secret, join(lab.project, '.ai/knowledge/link.md'));
        return await shown(lab, 'pelican');
      },
    },
  ]);
});

/** Documents that take a search beyond its bounds if any step costs more than time linear in their size. */
const POISON: readonly (readonly [name: string, body: string, query: string])[] = [
  ['a word that is every other word', 'x é '.repeat(2 * MIB), 'x'],
  ['one word five million times', 'z '.repeat(5 * MIB), 'z'],
  ['a phrase of one word', 'z '.repeat(5 * MIB), `"${'z '.repeat(30)}"`],
  ['a phrase that nearly matches everywhere', 'z '.repeat(5 * MIB), `"${'z '.repeat(30)}y"`],
  ['a query that repeats its word', 'z '.repeat(5 * MIB), `z ${'(z OR z) '.repeat(10)}`],
  ['one line without a space', 'y'.repeat(10 * MIB), 'y*'],
  ['a phrase across a gap', `x${' '.repeat(10 * MIB)}y`, '"x y"'],
  ['a prefix of a huge vocabulary', vocabulary(10 * MIB), 'a*'],
  ['a phrase of prefixes', vocabulary(10 * MIB), 'abc* abcd* a* ab*'],
  ['lines without end', '\n'.repeat(10 * MIB), 'note'],
  ['marks of accents without end', `e${'\u{301}'.repeat(5 * MIB)}`, 'e'],
];

function vocabulary(length: number): string {
  const words: string[] = [];
  for (let at = 0; words.length * 10 < length; at += 1) words.push(`abcd${at.toString(36)}`);
  return words.join(' ');
}

describe('A document of 10 MiB', () => {
  // Requirement: search-bounded
  it.each(POISON)('with %s costs a search no more than reading it does', async (_, body, query) => {
    await inLab(async (lab) => {
      lab.write('knowledge/poison.md', `${HEAD}${body}`);
      const items = lab.rye().items;
      await items.search('all', 'warm');
      const floor = await processorTime(() => body.match(/\p{L}/gu)?.length);
      const own = await processorTime(async () => await items.search('all', query));
      // a step that is quadratic takes hundreds of times as long
      expect(own).toBeLessThan(floor + 300);
    });
  });
});

async function processorTime(work: () => unknown): Promise<number> {
  const begun = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / 1000;
}
