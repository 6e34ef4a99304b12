import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const ROW = /^\| (A-\d{3}) \| (core|SDK) \| (.+?) \| (.+) \|$/;
/** `path of the file › title of the test` */
const REFERENCE = /`([^`]+?) › ([^`]+)`/g;
const REASON = /^(?:Not taken: .+\.|Not yet\.)/;

const rows = readFileSync('docs/loop-requirements.md', 'utf8')
  .split('\n')
  .flatMap((line) => {
    const [, id = '', , , shown = ''] = ROW.exec(line) ?? [];
    return id === '' ? [] : [{ id, shown, references: [...shown.matchAll(REFERENCE)] }];
  });

/** Whether a test file has a text literal that is this title. */
function isTitle(source: string, title: string): boolean {
  const forms = [`'${title.replaceAll("'", "\\'")}'`, `"${title}"`, `\`${title}\``];
  return forms.some((form) => source.includes(form));
}

describe('docs/loop-requirements.md', () => {
  it('has each of the 172 requirements exactly once, in order', () => {
    const ids = Array.from({ length: 172 }, (_, index) => `A-${`${index + 1}`.padStart(3, '0')}`);
    expect(rows.map(({ id }) => id)).toEqual(ids);
  });

  it('names tests that exist', () => {
    const missing = rows.flatMap(({ id, references }) =>
      references
        .filter(([, file = '', title = '']) => {
          const path = `test/${file}`;
          return !existsSync(path) || !isTitle(readFileSync(path, 'utf8'), title);
        })
        .map(([reference]) => `${id} ${reference}`),
    );
    expect(missing).toEqual([]);
  });

  it('shows each requirement by a test, or says why it is not taken', () => {
    const bare = rows.filter(
      ({ shown, references }) => references.length === 0 && !REASON.test(shown),
    );
    expect(bare.map(({ id }) => id)).toEqual([]);
  });
});
