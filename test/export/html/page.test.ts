import { expect, it } from 'vitest';
import { exportHtml } from '../../../src/features/html/page.ts';
import { type ExportSource, onlyPath } from '../../../src/kernel/export/source.ts';
import { place, userMessage } from '../../log/support.ts';
import { sourceOf } from '../support.ts';
import { STORY } from './story.ts';

function pageOf(source: ExportSource): string {
  return [...exportHtml(source)].join('');
}

function articles(page: string): number {
  return page.match(/<article /g)?.length ?? 0;
}

it('a page of one branch has only its own entries and labels', () => {
  const whole = sourceOf(place(STORY));
  const branch = pageOf(onlyPath({ ...whole, leafId: 'e12' }));
  expect(pageOf(whole)).toContain('I would rather guess');
  expect(branch).not.toContain('I would rather guess');
  expect(branch).not.toContain('anything else');
  expect(branch).toContain('<span class="label">the fix</span>');
  const other = pageOf(onlyPath({ ...whole, leafId: 'e3' }));
  expect(articles(other)).toBe(3);
  expect(other).toContain('I would rather guess');
  expect(pageOf(whole)).toContain('↳ started audit/count-7 (audit/count)');
  expect(other).not.toContain('↳ started audit/count-7');
});

// Requirement: page-by-replacement
it('a page keeps what looks like a pattern or a place-holder, and no label that was cleared', () => {
  const odd = 'costs $& and $1 and $$, {{HIGHLIGHT_JS}}, %s';
  const page = pageOf(
    sourceOf(
      place([
        userMessage(odd),
        { event_type: 'label', payload: { target_id: 'e1', label: 'named $&' } },
        userMessage('more'),
        { event_type: 'label', payload: { target_id: 'e3', label: 'gone' } },
        { event_type: 'label', payload: { target_id: 'e3', label: null } },
      ]),
    ),
  );
  expect(page).toContain(odd.replaceAll('&', '&amp;'));
  expect(page.match(/\{\{\w+\}\}/g)?.every((found) => found === '{{HIGHLIGHT_JS}}')).toBe(true);
  expect(page).toContain('<span class="label">named $&amp;</span>');
  expect(page).not.toContain('<span class="label">gone</span>');
});

it('the same thread is the same page', () => {
  expect(pageOf(sourceOf(place(STORY)))).toBe(pageOf(sourceOf(place(STORY))));
});

it('a page of a log that does not verify begins with a warning', () => {
  const checks = [{ name: 'transcript', ok: false, detail: 'a line was edited at byte 7' }];
  const page = pageOf(sourceOf(place(STORY), { checks, itemIntegrity: 'unverified' }));
  expect(page).toContain('record does not verify');
  expect(page).not.toContain('record verified');
  expect(page).toMatch(/<details class="fold facts" open>.*a line was edited at byte 7/);
  expect(page).toContain('unsigned items were allowed');
});

it('a page of a very long thread shows its end, and states what is missing', () => {
  const drafts = Array.from({ length: 20_003 }, (_, index) => userMessage(`message ${index}.`));
  const left = [
    { event_type: 'leaf', payload: { target_id: 'e20000' } } as const,
    userMessage('newest'),
  ];
  const page = pageOf(sourceOf(place([...drafts, ...left])));
  expect(articles(page)).toBe(20_000);
  expect(page).toContain('5 entries, from the older part and from other branches, are not in it');
  expect(page).toContain('newest');
  expect(page).not.toContain('message 20001.');
  expect(page).not.toContain('>message 0.<');
});
