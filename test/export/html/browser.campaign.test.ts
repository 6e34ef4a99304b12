import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { exportHtml } from '../../../src/features/html/page.ts';
import type { ExportSource } from '../../../src/kernel/export/source.ts';
import { viewTree } from '../../../src/kernel/log/tree-view.ts';
import { launchBrowser, missingBrowser, watchedPage } from '../../helpers/browser.ts';
import { removeFolder } from '../../helpers/remove-folder.ts';
import { place } from '../../log/support.ts';
import { sourceOf } from '../support.ts';
import { hostileSource } from './hostile.ts';
import { STORY } from './story.ts';

const why = missingBrowser();

describe.skipIf(why !== undefined)(`an exported page in a browser ${why ?? ''}`, () => {
  let browser: Browser;
  let folder = '';
  beforeAll(async () => {
    browser = await launchBrowser();
    folder = mkdtempSync(path.join(tmpdir(), 'rye-page-'));
  });
  afterAll(async () => {
    await browser.close();
    removeFolder(folder);
  });

  const story = sourceOf(place(STORY));

  function saved(source: ExportSource, name = 'page.html'): string {
    const file = path.join(folder, name);
    writeFileSync(file, [...exportHtml(source)].join(''));
    return pathToFileURL(file).href;
  }

  const WIDE = { width: 1280, height: 900 };

  /** Opens a page; when the test ends it must have done nothing but show itself. */
  async function open(source: ExportSource, { viewport = WIDE, hash = '' } = {}): Promise<Page> {
    const { page, seen } = await watchedPage(browser, saved(source) + hash, viewport);
    onTestFinished(async () => {
      await page.close();
      expect(seen).toEqual([]);
    });
    return page;
  }

  const rows = (page: Page) => page.locator('.rows a .text').allTextContents();
  const rowIds = (page: Page) =>
    page
      .locator('.rows a')
      .evaluateAll((all) => all.map((link) => link.getAttribute('href')?.replace('#entry-', '')));
  const shown = (page: Page) =>
    page.locator('article:visible').evaluateAll((all) => all.map(({ id }) => id));
  const selected = (page: Page) => page.locator('article.selected').getAttribute('id');

  it('shows the tree under each filter as the command line does', async () => {
    const page = await open(story);
    for (const [name, filter] of [
      ['No tools', 'no-tools'],
      ['User', 'user-only'],
      ['Labels', 'labeled-only'],
      ['All', 'all'],
      ['Default', 'default'],
    ] as const) {
      await page.locator('.filters').getByText(name, { exact: true }).click();
      const view = viewTree(story.tree, { filter });
      expect(await rowIds(page), filter).toEqual(view.map(({ entry }) => entry.id));
      expect(await page.locator('.count').textContent()).toBe(`${view.length} of 18 entries`);
      const leaf = view.findIndex((row) => row.leaf);
      if (leaf >= 0)
        expect(await page.locator('.rows li').nth(leaf).getAttribute('class')).toMatch(/leaf|near/);
    }
  });

  it('finds words anywhere in the conversation, and goes to the first on Enter', async () => {
    const page = await open(story);
    await page.keyboard.press('/');
    await page.keyboard.type('replaceAll AMOUNT');
    await expect.poll(() => rows(page)).toHaveLength(1);
    await page.keyboard.press('Enter');
    await expect.poll(() => selected(page)).toBe('entry-e12');
    expect(await page.evaluate('CSS.highlights.get("found").size')).toBeGreaterThan(2);
    await page.locator('.search input').fill('nothing has these words');
    await expect.poll(() => rows(page)).toEqual([]);
  });

  it('opens at the entry that the address names, on any branch', async () => {
    const active = ['e1', 'e2', 'e5', 'e6'];
    const page = await open(story, { hash: '#entry-e3' });
    expect(await selected(page)).toBe('entry-e3');
    expect(await shown(page)).toEqual(['entry-e1', 'entry-e2', 'entry-e3', 'entry-e4']);
    // how the thread ended is no end of this branch
    expect(await page.locator('.end').isVisible()).toBe(false);
    await page.locator('.branch-bar button').click();
    expect((await shown(page)).slice(0, 4)).toEqual(active.map((id) => `entry-${id}`));
    expect(await page.locator('.branch-bar').isVisible()).toBe(false);
    expect(await page.locator('.end').isVisible()).toBe(true);
    await page.evaluate('location.hash = "e12"');
    await expect.poll(() => selected(page)).toBe('entry-e12');
    expect(
      await page.locator('article.selected').evaluate((entry) => entry === document.activeElement),
    ).toBe(true);
    expect(await page.locator('.rows [aria-current]').count()).toBe(1);
    await page.evaluate('location.hash = "no-such-entry"');
    expect(await selected(page)).toBe('entry-e12');
  });

  it('goes along a branch that is chosen where it parts', async () => {
    const page = await open(story);
    await page.locator('.forks a', { hasText: 'I would rather guess' }).click();
    await expect.poll(() => shown(page)).toContain('entry-e3');
    await page.locator('.rows a', { hasText: 'anything else' }).click();
    await expect.poll(() => shown(page)).not.toContain('entry-e3');
  });

  it('is read with the keyboard alone', async () => {
    const page = await open(story);
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    expect(await selected(page)).toBe('entry-e2');
    await page.keyboard.press('j');
    expect(await selected(page)).toBe('entry-e5');
    await page.keyboard.press('k');
    expect(await selected(page)).toBe('entry-e2');
    await page.locator('.rows a').first().focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await expect.poll(() => selected(page)).toBe('entry-e5');
  });

  it('folds thinking and what tools did', async () => {
    const page = await open(story);
    const thinking = page.locator('.thinking .prose', {
      hasText: 'I should look at the file first',
    });
    expect(await thinking.isVisible()).toBe(false);
    await page.getByRole('button', { name: 'Thinking' }).click();
    expect(await thinking.isVisible()).toBe(true);
    const output = page.locator('.tool pre', { hasText: '214 ledger.csv' });
    expect(await output.isVisible()).toBe(true);
    await page.locator('summary', { hasText: 'head -3 ledger.csv' }).click();
    expect(await output.isVisible()).toBe(false);
    await page.getByRole('button', { name: 'Tools' }).click();
    expect(await output.isVisible()).toBe(true);
    // an error is not hidden
    expect(await page.locator('pre', { hasText: 'ENOENT' }).isVisible()).toBe(true);
  });

  it('has the tree in a drawer where the screen is narrow', async () => {
    const page = await open(story, { viewport: { width: 390, height: 800 } });
    const tree = page.locator('.rows');
    expect(await tree.isVisible()).toBe(false);
    const width = await page.evaluate('document.documentElement.scrollWidth');
    expect(width).toBe(390);
    await page.getByRole('button', { name: 'Tree' }).click();
    expect(await tree.isVisible()).toBe(true);
    expect(
      await page.locator('.search input').evaluate((input) => input === document.activeElement),
    ).toBe(true);
    await page.keyboard.press('Escape');
    await expect.poll(() => tree.isVisible()).toBe(false);
    await page.getByRole('button', { name: 'Tree' }).click();
    await page.locator('.rows a', { hasText: 'anything else' }).click();
    await expect.poll(() => tree.isVisible()).toBe(false);
    expect(await page.locator('article.selected').isVisible()).toBe(true);
  });

  it('is coloured, dark where that is wanted, and prints what is folded', async () => {
    const page = await open(story);
    const background = () =>
      page.evaluate('getComputedStyle(document.documentElement).backgroundColor');
    const light = await background();
    expect(await page.locator('.hljs-keyword').count()).toBeGreaterThan(3);
    await page.emulateMedia({ colorScheme: 'dark' });
    expect(await background()).not.toBe(light);
    await page.emulateMedia({ media: 'print' });
    expect(await page.locator('.side').isVisible()).toBe(false);
    expect(
      await page.locator('.prose', { hasText: 'I should look at the file first' }).isVisible(),
    ).toBe(true);
  });

  it('reads without scripts', async () => {
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(saved(story));
    expect(await page.getByText('Is there anything else?').isVisible()).toBe(true);
    expect(await page.locator('.search').isVisible()).toBe(false);
    await context.close();
  });

  it('runs nothing and loads nothing for a hostile thread', async () => {
    const source = hostileSource();
    const page = await open(source);
    await page.locator('.filters').getByText('All').click();
    await page.locator('.search input').fill('script');
    await page.getByRole('button', { name: 'Tools' }).click();
    await page.getByRole('button', { name: 'Thinking' }).click();
    await page.keyboard.press('Escape');
    for (let key = 0; key < 30; key += 1) await page.keyboard.press('j');
    await page.mouse.move(700, 400);
    expect(await page.locator('article').count()).toBe(source.tree.entries.length);
    expect(await page.locator('script').count()).toBe(3);
    expect(await page.locator('script:not([type])').count()).toBe(1);
    expect(
      await page.locator('img, svg, iframe, object, embed, form, base, link, video').count(),
    ).toBe(0);
    const attributes = await page.evaluate(() =>
      [...document.querySelectorAll('main *')].flatMap((element) =>
        element.getAttributeNames().filter((name) => /^on|^style$|^src/.test(name)),
      ),
    );
    expect(attributes).toEqual([]);
    const protocols = await page.evaluate(() => [
      ...new Set([...document.querySelectorAll('a')].map((link) => `${link.protocol} ${link.rel}`)),
    ]);
    expect(protocols.toSorted((a, b) => a.localeCompare(b))).toEqual([
      'file: ',
      'http: noopener noreferrer nofollow',
    ]);
  });

  it('would be caught if it did', async () => {
    const file = path.join(folder, 'bad.html');
    writeFileSync(file, '<img src=x onerror="ryePwned(1)"><script>alert(2)</script>');
    const { page, seen } = await watchedPage(browser, pathToFileURL(file).href);
    await expect.poll(() => seen.length).toBeGreaterThan(2);
    expect(seen.join('\n')).toMatch(/dialog: 2/);
    expect(seen.join('\n')).toMatch(/request: .*\/x/);
    expect(seen.join('\n')).toMatch(/script ran: 1/);
    await page.close();
  });
});
