import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

/** A feature of a seed system, and the test that shows it at the level of a user. */
interface Row {
  readonly row: number;
  readonly feature: string;
  /** A line about what the test shows. */
  readonly shows?: string;
  /** `file > suite > test`, as vitest prints it. */
  readonly test?: string;
  /** Why this test shows other rows too. */
  readonly shared?: string;
  /** Why rye differs on purpose, and the page of the documentation that explains it. */
  readonly differs?: string;
  readonly page?: string;
  /** Names the part that does not work yet. */
  readonly missing?: string;
}

const SEEDS = { lifecycle: 90, tree: 73, rules: 38, loop: 116, steer: 20 };

const rows = Object.keys(SEEDS).flatMap((seed) =>
  (JSON.parse(readFileSync(`test/mission/rows/${seed}.json`, 'utf8')) as readonly Row[]).map(
    (row) => ({ ...row, id: `${seed} ${row.row}` }),
  ),
);

const sources = new Map<string, { readonly text: string; readonly titles: readonly RegExp[] }>();

/** The text of a test file, and a pattern for each title in it: the first argument of a call. */
function sourceOf(file: string) {
  const known = sources.get(file);
  if (known !== undefined) return known;
  const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
  const literals = text.matchAll(/\(\s*(?:\/\/[^\n]*\s*)*(['"`])((?:\\.|(?!\1)[^\\])+)\1,/g);
  const titles = [...literals].map(([, , title = '']) => patternOf(title));
  const source = { text, titles };
  sources.set(file, source);
  return source;
}

/** A pattern for the names that a title gets: `%s`, `$name` and `${name}` are parts that vary. */
function patternOf(title: string): RegExp {
  const parts = title.replaceAll(/\\(.)/g, '$1').split(/%[a-z]|\$\{[^}]*\}|\$[a-zA-Z_.]+/);
  const escaped = parts.map((part) => part.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`));
  return new RegExp(`^${escaped.join('(.*)')}$`, 's');
}

/** Removes what a list or an object has otherwise in a name than in the source. */
const lettersOf = (text: string): string => text.replaceAll(/[^\p{L}\p{N}]/gu, '');

/** True if the file has a title for this part of a name, and the text of each part that varies. */
function hasTitle(file: string, part: string): boolean {
  const { text, titles } = sourceOf(file);
  // rows of an attack have their name, cut, and their code in quotes
  const [, attack] = /^'(.+?)…?'(?: → '\w+')?$/.exec(part) ?? [];
  if (attack !== undefined && text.includes(`name: '${attack}`)) return true;
  return titles.some((title) => {
    const values = title.exec(part)?.slice(1);
    return values?.every((value) => lettersOf(text).includes(lettersOf(value))) ?? false;
  });
}

function isKnown(test: string): boolean {
  const [file = '', ...parts] = test.split(' > ');
  return parts.length > 0 && parts.every((part) => hasTitle(file, part));
}

/** True if a page of the documentation has the section after the `#`, and in it the reason why a row differs. */
function isExplained({ page = '', differs = '' }: Row): boolean {
  const [file = '', section] = page.split('#');
  if (!existsSync(file)) return false;
  const parts = readFileSync(file, 'utf8').split(/^#+ /m);
  return parts.some((part) => {
    const [title = ''] = part.split('\n');
    const id = title
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, '')
      .replaceAll(/\s/g, '-');
    return id === section && part.replaceAll(/\s+/g, ' ').includes(differs);
  });
}

const idsOf = (wrong: (row: Row) => boolean) => rows.filter(wrong).map(({ id }) => id);

describe('the mission table', () => {
  it('has each row of the seeds once', () => {
    expect(rows.map(({ id }) => id)).toEqual(
      Object.entries(SEEDS).flatMap(([seed, count]) =>
        Array.from({ length: count }, (_, index) => `${seed} ${index + 1}`),
      ),
    );
  });

  it('has a test and what it shows for each row, or why it is missing or differs', () => {
    const isComplete = ({ test, shows, differs, missing }: Row) =>
      missing === undefined
        ? (test === undefined) === (shows === undefined) && (test ?? differs) !== undefined
        : (test ?? differs) === undefined;
    expect(idsOf((row) => row.feature === '' || !isComplete(row))).toEqual([]);
  });

  it('names tests that exist', () => {
    expect(idsOf(({ test }) => test !== undefined && !isKnown(test))).toEqual([]);
  });

  it('lets two rows have one test only with a reason', () => {
    const tests = rows.flatMap(({ test }) => test ?? []);
    const isTwice = (test: string) => tests.indexOf(test) !== tests.lastIndexOf(test);
    expect(
      idsOf(({ test, shared }) => test !== undefined && isTwice(test) !== (shared !== undefined)),
    ).toEqual([]);
  });

  it('has the reason of each difference in the documentation', () => {
    expect(idsOf(({ differs, page }) => (differs === undefined) !== (page === undefined))).toEqual(
      [],
    );
    expect(idsOf((row) => row.page !== undefined && !isExplained(row))).toEqual([]);
  });
});
