import { describe, expect, it } from 'vitest';
import { PAGES, surprisesOf } from './pages.ts';

// Requirement: broken-documentation
describe.concurrent('the documentation is true word for word', () => {
  it.each(PAGES)('%s', { timeout: 180_000 }, async (page) => {
    expect(await surprisesOf(page)).toBe('');
  });
});
